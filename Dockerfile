# Two stages: the first builds the binary, the second holds it and nothing that could build.
# Both images can be replaced, for a mirror or a hardened base of your own:
#   docker build --build-arg BUILD_IMAGE=… --build-arg RUNTIME_IMAGE=… .
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
# The registry and the target directory are kept between builds, so that a change of the source
# compiles this crate alone; the binary is copied out because a cache is not part of the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked \
    && mkdir -p /image/usr/local/bin /image/var/lib/actonce \
    && cp target/release/actonce /image/usr/local/bin/actonce

# No command runs in this stage, so a base image without a shell will do; it needs glibc.
FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Actonce" \
      org.opencontainers.image.description="Act once, or stop: durable intents, dispatch grants and outcomes for programs that act on the world" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

# The roots that outgoing HTTPS (a JWKS URL) is verified against.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /image/usr/local/bin/actonce /usr/local/bin/actonce
COPY --from=build --chown=65532:65532 /image/var/lib/actonce /var/lib/actonce

# Everything that is written goes into the volume; the root file system may be read-only.
ENV ACTONCE_LISTEN=0.0.0.0:8080 \
    ACTONCE_DATA_DIR=/var/lib/actonce
VOLUME /var/lib/actonce
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["actonce", "health"]
ENTRYPOINT ["actonce"]
CMD ["serve"]
