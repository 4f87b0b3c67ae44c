//! The certificate of the service.

use super::Findings;
use crate::auth::wall_clock_us;
use crate::config::Config;
use crate::limits;

pub(super) fn judge(config: &Config, findings: &mut Findings) {
    let Some(files) = &config.tls else { return };
    let name = files.certificate.display();
    match files.check() {
        Ok(expires_at) => {
            let days = expires_at.saturating_sub(wall_clock_us() / 1_000_000).div_euclid(86_400);
            if days < 0 {
                let advice =
                    ("clients refuse to connect", "put a new certificate and its key in place of the old ones");
                findings.fail("tls", format!("the certificate in {name} has expired"), advice);
            } else if days < limits::TLS_SOON_DAYS {
                let advice = ("soon clients refuse to connect", "put a new certificate and its key in their place");
                findings.warn("tls", format!("the certificate in {name} ends in {days} days"), advice);
            } else {
                findings.ok("tls", format!("the certificate ends in {days} days"), "clients can connect over TLS");
            }
        }
        Err(fault) => {
            let advice = ("a service that runs keeps what it had; none starts", "mend the files");
            findings.fail("tls", fault.to_string(), advice);
        }
    }
    if files.key_is_open() {
        let advice = ("who has the key can stand in for the service", "take the rights of others away: chmod o= FILE");
        findings.warn("tls", format!("everybody on this machine may read {}", files.key.display()), advice);
    }
}
