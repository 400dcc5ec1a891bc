# The binary is built outside, by `make build`: it is static and needs nothing around it. Bases of others
# are not needed, so none have to be kept up to date.
#
#   make docker                     builds weir:latest
#   docker run -p 8080:8080 -v weir:/data weir:latest
#
# In a container loopback reaches nobody, so the node listens on every address, without asking who calls:
# publish the port only where that is meant (-p 127.0.0.1:8080:8080).
FROM scratch
COPY --chown=65532:65532 bin/weir /weir
COPY --chown=65532:65532 docker/data /data
USER 65532:65532
ENV WEIR_DATA=/data/weir \
    WEIR_HTTP_ADDRESS=0.0.0.0:8080 \
    WEIR_HTTP_INSECURE=true
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/weir", "health", "--timeout", "3s"]
ENTRYPOINT ["/weir"]
CMD ["serve"]
