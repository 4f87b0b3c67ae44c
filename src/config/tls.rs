//! TLS of the service's own.

use std::path::PathBuf;

use super::args::ServeArgs;
use super::file::{Given, Problems, Section};
use crate::tls::{TlsFault, TlsFiles};

/// Reads where certificate and key are, and whether they could be used.
pub(super) fn read(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> Option<TlsFiles> {
    let (name, variable) = ("tls_certificate_file", "ACTONCE_TLS_CERTIFICATE_FILE");
    let certificate = file.pick(args.tls_certificate_file.as_ref(), variable, name, problems);
    let key = file.pick(args.tls_key_file.as_ref(), "ACTONCE_TLS_KEY_FILE", "tls_key_file", problems);
    let path = |given: &Given| PathBuf::from(given.text.expose());
    match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let files = TlsFiles { certificate: path(&certificate), key: path(&key) };
            if let Err(fault) = files.check() {
                let from = match &fault {
                    TlsFault::Unreadable { path, .. } | TlsFault::Content { path, .. } if *path != files.key => {
                        &certificate.from
                    }
                    _ => &key.from,
                };
                problems.push(format!("{from}: {fault}"));
            }
            Some(files)
        }
        (Some(alone), None) => {
            problems.push(format!("{}: needs its key too: set ACTONCE_TLS_KEY_FILE", alone.from));
            None
        }
        (None, Some(alone)) => {
            problems.push(format!("{}: needs its certificate too: set ACTONCE_TLS_CERTIFICATE_FILE", alone.from));
            None
        }
    }
}
