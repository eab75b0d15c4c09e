# syntax=docker/dockerfile:1
# The Inference Lab as a container; the steps are those of run.py.
#
#   docker build -t inference-lab .
#   docker run -p 8501:8501 -v inference-lab:/lab/var inference-lab        and open http://127.0.0.1:8501
#
# For NVIDIA cards (torch's wheels bring CUDA's libraries; the base only tells the driver what to put in):
#
#   docker build -t inference-lab --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 .
#   docker run --gpus all -p 8501:8501 -v inference-lab:/lab/var inference-lab
#
# --build-arg PIP_EXTRA_INDEX_URL=… with the address of PyTorch's index of CPU builds makes the image for CPUs smaller by gigabytes.
# Reached by a name: -e INFERENCE_LAB_HOSTS=lab.example.org
ARG BASE=python:3.13-slim
# hadolint ignore=DL3006
FROM ${BASE}

# Bases with CUDA bring no Python; which one they have is theirs to say.
# hadolint ignore=DL3008
RUN command -v python3 >/dev/null || { apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates \
    && rm -rf /var/lib/apt/lists/*; }

RUN useradd --uid 10001 --no-create-home --home-dir /lab --shell /usr/sbin/nologin lab \
    && install --directory --owner lab --group lab /lab /lab/var
WORKDIR /lab
USER 10001

# What is installed changes less often than the pages.
ARG PIP_EXTRA_INDEX_URL
COPY run.py requirements*.txt requirements*.lock ./
RUN python3 run.py setup
COPY . .

EXPOSE 8501
VOLUME /lab/var
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/healthz', timeout=5)"]
CMD ["python3", "run.py", "--host", "0.0.0.0"]
