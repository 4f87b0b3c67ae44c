//! How many effects each tenant, and each of its principals, may have open.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;

use super::file::{Given, Problems, Section};
use super::values;
use crate::domain::ids::Tenant;
use crate::domain::quota::OpenQuota;
use crate::limits;

/// How much each tenant, and each of its principals, may have open.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct QuotaArgs {
    /// Unsettled effects that a tenant may have before its new intents are refused, nearly; 0 for no bound [default: 0]
    #[arg(long, env = "ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", value_name = "COUNT")]
    pub quota_tenant_open_effects: Option<String>,
    /// Of one principal, those that it proposed, nearly; 0 for no bound [default: 0]
    #[arg(long, env = "ACTONCE_QUOTA_PRINCIPAL_OPEN_EFFECTS", value_name = "COUNT")]
    pub quota_principal_open_effects: Option<String>,
}

/// The bounds of tenants, and those of principals.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenQuotas {
    pub(super) tenants: OpenQuota,
    pub(super) principals: OpenQuota,
}

/// Reads the bounds of all, and `[quotas]` with those of single tenants and of their principals. `0` is no bound.
pub(super) fn read(args: &QuotaArgs, file: &mut Section, problems: &mut Problems) -> OpenQuotas {
    let given = args.quota_tenant_open_effects.as_ref();
    let (variable, key) = ("ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", "quota_tenant_open_effects");
    let tenants = file.pick(given, variable, key, problems).and_then(|given| most(&given, problems));
    let given = args.quota_principal_open_effects.as_ref();
    let (variable, key) = ("ACTONCE_QUOTA_PRINCIPAL_OPEN_EFFECTS", "quota_principal_open_effects");
    let principals = file.pick(given, variable, key, problems).and_then(|given| most(&given, problems));
    let mut section = file.section("quotas", problems);
    let quotas = OpenQuotas {
        tenants: OpenQuota { default: tenants, tenants: named("tenants", &mut section, problems) },
        principals: OpenQuota { default: principals, tenants: named("principals", &mut section, problems) },
    };
    section.finish(problems);
    quotas
}

/// A table of bounds by tenant.
fn named(table: &str, section: &mut Section, problems: &mut Problems) -> BTreeMap<Tenant, Option<NonZeroU32>> {
    let mut quotas = BTreeMap::new();
    let mut tenants = section.section(table, problems);
    for name in tenants.names() {
        let fault = |fault: &dyn Display| format!("`quotas.{table}.{name}`: a name of a tenant {fault}");
        match Tenant::new(&name) {
            Ok(tenant) => {
                problems.note(if table == "tenants" { "quotas.tenants" } else { "quotas.principals" }, true, "");
                let most = tenants.text(&name, problems).and_then(|given| most(&given, problems));
                quotas.insert(tenant, most);
            }
            Err(error) => problems.push(fault(&error)),
        }
    }
    tenants.finish(problems);
    quotas
}

fn most(given: &Given, problems: &mut Problems) -> Option<NonZeroU32> {
    let most = given.parse(problems, |text| values::number(text, 0..=limits::QUOTA_MAX_OPEN))?;
    u32::try_from(most).ok().and_then(NonZeroU32::new)
}
