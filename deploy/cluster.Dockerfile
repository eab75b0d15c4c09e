# The image of deploy/kuberay.yaml: the lab's own, with Ray. After `docker build -t inference-lab .` in the repository:
#
#   docker build -t inference-lab-cluster -f deploy/cluster.Dockerfile .
ARG BASE=inference-lab
# hadolint ignore=DL3006
FROM ${BASE}

# KubeRay's probes call wget.
USER root
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*
USER 10001

RUN .venv/bin/python -m pip install --no-cache-dir -r requirements-cluster.lock
ENV PATH=/lab/.venv/bin:$PATH PYTHONPATH=/lab RAY_USAGE_STATS_ENABLED=0
HEALTHCHECK NONE
