//! The table `[retention]` of the configuration file: how long settled effects are kept whole.

use std::fmt::Display;

use super::file::{self, Problems, Section};
use super::{ConfigError, values};
use crate::domain::ids::Tenant;
use crate::domain::retention::{DAYS_MAX, Retention};

/// Reads it: `default_days`, and `[retention.tenants]` with a number of days per tenant. `0` is for ever.
pub(super) fn read(file: &mut Section, problems: &mut Problems) -> Retention {
    let mut section = file.section("retention", problems);
    let mut retention =
        Retention { default_days: days(&mut section, "default_days", problems), ..Retention::default() };
    let mut tenants = section.section("tenants", problems);
    for name in tenants.names() {
        let fault = |fault: &dyn Display| format!("`retention.tenants.{name}`: a name of a tenant {fault}");
        match Tenant::new(&name) {
            Ok(tenant) => {
                let days = days(&mut tenants, &name, problems);
                retention.tenants.insert(tenant, days);
            }
            Err(error) => problems.push(fault(&error)),
        }
    }
    tenants.finish(problems);
    section.finish(problems);
    retention
}

fn days(section: &mut Section, key: &str, problems: &mut Problems) -> Option<u32> {
    let given = section.text(key, problems)?;
    let range = 0..=u64::from(DAYS_MAX);
    let days = given.parse(problems, |text| values::number(text, range))?;
    u32::try_from(days).ok().filter(|days| *days > 0)
}

/// The same for a command, from a configuration file whose other settings are a service's.
///
/// # Errors
/// The file can't be read, or the table has faults.
pub fn retention(path: Option<&str>) -> Result<Retention, ConfigError> {
    let mut problems = Problems::default();
    let path = path.map(str::to_owned);
    let mut file = file::load(path.as_ref(), &mut problems);
    let retention = read(&mut file, &mut problems);
    let problems = problems.into_sentences();
    if problems.is_empty() { Ok(retention) } else { Err(ConfigError { problems }) }
}
