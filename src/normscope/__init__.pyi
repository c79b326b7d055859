from .api.comparison import compare as compare, compare_runs as compare_runs
from .api.coordinates import coordinate_check as coordinate_check
from .api.finetuning import finetune as finetune
from .api.models import diagnose as diagnose, transplant as transplant, untransplant as untransplant
from .api.placements import choose as choose, placements as placements
from .api.prediction import predict as predict
from .api.runs import load_run as load_run, open_run as open_run, train as train
from .api.training import attach as attach, profile as profile, schedule as schedule
from .errors import UserError as UserError
from .model.padded.place import place as place
from .model.padded.stacks import Decoder as Decoder, Encoder as Encoder, Transformer as Transformer
from .optim import AdaptiveConfig as AdaptiveConfig

__version__: str

def load_ipython_extension(shell: object) -> None: ...
