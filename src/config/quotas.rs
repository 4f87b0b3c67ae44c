//! How many effects each tenant may have open.

use std::fmt::Display;
use std::num::NonZeroU32;

use super::file::{Given, Problems, Section};
use super::values;
use crate::domain::ids::Tenant;
use crate::domain::quota::OpenQuota;
use crate::limits;

/// How much each tenant may have open.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct QuotaArgs {
    /// Unsettled effects that a tenant may have before its new intents are refused, nearly; 0 for no bound [default: 0]
    #[arg(long, env = "ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", value_name = "COUNT")]
    pub quota_tenant_open_effects: Option<String>,
}

/// Reads the bound of all, and `[quotas.tenants]` with those of single ones. `0` is no bound.
pub(super) fn read(args: &QuotaArgs, file: &mut Section, problems: &mut Problems) -> OpenQuota {
    let (variable, key) = ("ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", "quota_tenant_open_effects");
    let given = file.pick(args.quota_tenant_open_effects.as_ref(), variable, key, problems);
    let mut quota = OpenQuota { default: given.and_then(|given| most(&given, problems)), ..OpenQuota::default() };
    let mut section = file.section("quotas", problems);
    let mut tenants = section.section("tenants", problems);
    for name in tenants.names() {
        let fault = |fault: &dyn Display| format!("`quotas.tenants.{name}`: a name of a tenant {fault}");
        match Tenant::new(&name) {
            Ok(tenant) => {
                problems.note("quotas.tenants", true, "");
                let most = tenants.text(&name, problems).and_then(|given| most(&given, problems));
                quota.tenants.insert(tenant, most);
            }
            Err(error) => problems.push(fault(&error)),
        }
    }
    tenants.finish(problems);
    section.finish(problems);
    quota
}

fn most(given: &Given, problems: &mut Problems) -> Option<NonZeroU32> {
    let most = given.parse(problems, |text| values::number(text, 0..=limits::QUOTA_MAX_OPEN))?;
    u32::try_from(most).ok().and_then(NonZeroU32::new)
}
