from .api.comparison import compare as compare
from .api.comparison import compare_runs as compare_runs
from .api.coordinates import coordinate_check as coordinate_check
from .api.models import diagnose as diagnose
from .api.models import transplant as transplant
from .api.models import untransplant as untransplant
from .api.placements import choose as choose
from .api.placements import placements as placements
from .api.prediction import predict as predict
from .api.runs import load_run as load_run
from .api.runs import open_run as open_run
from .api.runs import train as train
from .api.training import attach as attach
from .api.training import profile as profile
from .api.training import schedule as schedule
from .errors import UserError as UserError
from .model.padded.place import place as place
from .model.padded.stacks import Decoder as Decoder
from .model.padded.stacks import Encoder as Encoder
from .model.padded.stacks import Transformer as Transformer
from .optim import AdaptiveConfig as AdaptiveConfig

__version__: str

def load_ipython_extension(shell: object) -> None: ...
