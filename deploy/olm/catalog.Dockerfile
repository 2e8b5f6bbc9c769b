# Written by `make bundle`.
# docker build --file deploy/olm/catalog.Dockerfile --tag leasehold/catalog:0.1.0 deploy/olm
FROM quay.io/operator-framework/opm:v1.57.0
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
COPY catalog /configs
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]
LABEL operators.operatorframework.io.index.configs.v1=/configs
