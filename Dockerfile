# The first stages build the binary and the list of what it is made of; the last one holds them, the libraries
# that the binary links to, and nothing else: no shell, no package manager. The build image can be replaced, for a
# mirror or a hardened base of your own; it needs Rust, a C compiler, Python 3, CA certificates, and glibc 2.34 or
# newer (from there on, name resolution is part of libc itself):
#   docker build --build-arg BUILD_IMAGE=… .
ARG BUILD_IMAGE=rust:1.95-bookworm

FROM ${BUILD_IMAGE} AS sbom
WORKDIR /src
COPY scripts/sbom scripts/
RUN python3 scripts/sbom --install
COPY Cargo.toml Cargo.lock ./
# Given, it makes the list the same each time.
ARG SOURCE_DATE_EPOCH
RUN python3 scripts/sbom /sbom.cdx.json

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# The dependencies first, with an empty crate, so that a change of the source compiles this crate
# alone. Layers do that with every builder; cache mounts do it with some.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src && touch src/lib.rs && echo 'fn main() {}' >src/main.rs \
    && cargo build --release --locked
COPY . .
# Files keep the time they were changed at, which is before the empty crate was compiled.
RUN touch src/lib.rs src/main.rs && cargo build --release --frozen
# The whole file system of the image.
RUN mkdir -p /image/usr/local/bin /image/etc /image/var/lib /data \
    && mkdir -m 0700 /data/actonce \
    && cp target/release/actonce /image/usr/local/bin/ \
    && ldd target/release/actonce >/libraries \
    && grep -o '/[^ ]*' /libraries | xargs cp -L --parents -t /image \
    # Which packages these files are from, where scanners of images look for it.
    && mkdir -p /image/var/lib/dpkg/status.d \
    && if command -v dpkg-query >/dev/null; then \
         cp -L /etc/os-release /image/etc/ \
         && for file in $(grep -o '/[^ ]*' /libraries); do dpkg-query --search "*/${file##*/}"; done >/found \
         && for package in $(cut -d : -f 1 /found | sort -u) ca-certificates; do \
              dpkg-query --status "$package" >"/image/var/lib/dpkg/status.d/$package" || exit 1; \
            done; \
       fi \
    # The roots that outgoing HTTPS (a JWKS URL) is verified against.
    && cp -L --parents /etc/ssl/certs/ca-certificates.crt /image \
    && echo 'actonce:x:65532:65532::/var/lib/actonce:/sbin/nologin' >/image/etc/passwd \
    && echo 'actonce:x:65532:' >/image/etc/group \
    && echo 'hosts: files dns' >/image/etc/nsswitch.conf

FROM scratch
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Actonce" \
      org.opencontainers.image.description="Act once, or stop: durable intents, dispatch grants and outcomes for programs that act on the world" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      actonce.sbom="/usr/share/doc/actonce/sbom.cdx.json"

COPY --from=build /image/ /
COPY LICENSE /usr/share/doc/actonce/
COPY --from=sbom /sbom.cdx.json /usr/share/doc/actonce/
COPY --from=build --chown=65532:65532 /data/ /var/lib/

# Everything that is written goes into the volume; the root file system may be read-only.
ENV PATH=/usr/local/bin \
    ACTONCE_LISTEN=0.0.0.0:8080 \
    ACTONCE_DATA_DIR=/var/lib/actonce
VOLUME /var/lib/actonce
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["actonce", "health"]
ENTRYPOINT ["actonce"]
CMD ["serve"]
