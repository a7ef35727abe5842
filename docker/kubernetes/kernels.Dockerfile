# The server's image with a repository's kernels compiled ahead. Its context is the folder that warm.py filled:
#   docker build -f kernels.Dockerfile --build-arg SERVER=REGISTRY/SERVER:26.09 -t REGISTRY/house-prices:26.09 kernels
# Each replica copies them into its own cache before it starts, since its root is read-only and the cache is not.
ARG SERVER=triton-regressors-server:26.09
FROM ${SERVER}
COPY --chown=1000:1000 . /opt/kernels/
