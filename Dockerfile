# NormScope on a CPU, with models of transformers:
#   docker build --tag normscope .
#   docker run --rm --network none --volume "$PWD:/model:ro" normscope doctor my_model.py:build
# TORCH_INDEX names another index for torch, such as one with builds for CUDA.
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir "torch==2.13.0" --index-url "$TORCH_INDEX"
WORKDIR /normscope
COPY pyproject.toml setup.py README.md LICENSE MANIFEST.in ./
COPY src src
# What stands in this folder has no version to pin.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[huggingface]" && useradd --create-home --uid 1000 reader
USER 1000
WORKDIR /model
ENTRYPOINT ["normscope"]
CMD ["--help"]
