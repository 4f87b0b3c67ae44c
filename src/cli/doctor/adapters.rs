//! Adapters of registered tools: could they be called? Each place is connected to once; nothing is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::Findings;
use crate::config::AdapterPolicy;
use crate::domain::adapter::AdapterSpec;
use crate::domain::declarative::DeclarativeSpec;
use crate::domain::declarative::template::UrlTemplate;
use crate::domain::tool::ToolSpec;
use crate::limits;
use crate::outbound::client::SystemLookup;
use crate::outbound::reach::{Unreached, reach};
use crate::store::inspect::Inspection;

/// Connects to every place that adapters of tools are at, within a bound.
pub(super) async fn reach_all(policy: &AdapterPolicy, found: Option<&Inspection>, bound: Duration) -> Findings {
    let mut findings = Findings::default();
    let Some(found) = found else { return findings };
    let places = places(&found.adapters, &mut findings);
    let most = usize::try_from(limits::DOCTOR_TOOLS).unwrap_or(usize::MAX);
    if found.adapters.len() >= most || places.len() > most {
        let advice = ("the others were not looked at", "nothing: this is a sample");
        findings.warn("adapters", format!("only the first {most} tools or places were looked at"), advice);
    }
    let lookup = SystemLookup::default();
    let connect = Duration::from_secs(limits::DOCTOR_CONNECT_SECONDS);
    let mut reached = stream::iter(places.iter().take(most))
        .map(|(place, tool)| {
            let lookup = &lookup;
            async move { (place, tool, reach(policy, place, lookup, connect).await) }
        })
        .buffer_unordered(limits::DOCTOR_WIDTH);
    let (mut good, mut seen) = (0_usize, 0_usize);
    let until = tokio::time::Instant::now() + bound;
    while let Ok(Some((place, tool, result))) = tokio::time::timeout_at(until, reached.next()).await {
        seen = seen.saturating_add(1);
        match result {
            Ok(()) => good = good.saturating_add(1),
            Err(unreached) => {
                findings.warn("adapters", format!("{place} (tool {tool}): {unreached}"), advice(&unreached));
            }
        }
    }
    let all = places.len().min(most);
    if seen < all {
        let advice = ("nobody knows about them", "try again; see what the others say");
        findings.warn("adapters", format!("{} places were not reached in time", all.saturating_sub(seen)), advice);
    }
    if findings.0.is_empty() {
        findings.ok("adapters", format!("{good} places take connections"), "adapters can be asked");
    }
    findings
}

const fn advice(unreached: &Unreached) -> super::Advice {
    match unreached {
        Unreached::Refused(_) | Unreached::Forbidden => (
            "it is never called: doubts of this tool wait for their deadline or for a person",
            "register a public https address, or allow its network (ACTONCE_ADAPTER_ALLOW_NETWORKS, ACTONCE_ADAPTER_ALLOW_HTTP)",
        ),
        _ => (
            "doubts of this tool wait for their deadline or for a person",
            "see that the adapter runs, and that its name, port and certificate are right",
        ),
    }
}

/// Scheme, host and port of each adapter, with one tool that is there. Paths may hold what is secret.
fn places(adapters: &[(String, String, String)], findings: &mut Findings) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for (tenant, name, spec) in adapters {
        let tool = format!("{name} of {tenant}");
        let Ok(spec) = serde_json::from_str::<ToolSpec>(spec) else {
            let advice = ("the tool can't be used", "register it anew");
            findings.warn("adapters", format!("the registration of {tool} can't be read"), advice);
            continue;
        };
        for place in spec.adapter.iter().flat_map(of_adapter) {
            places.entry(place).or_insert_with(|| tool.clone());
        }
    }
    places
}

fn of_adapter(spec: &AdapterSpec) -> Vec<String> {
    let webhook = spec.url.as_deref().and_then(origin);
    let inquiries = spec.request.iter().flat_map(DeclarativeSpec::inquiries);
    let declared = inquiries.filter_map(|(_, _, inquiry)| UrlTemplate::parse(&inquiry.url).ok());
    let declared = declared.map(|template| format!("{}/", template.origin));
    webhook.into_iter().chain(declared).collect()
}

/// Up to the path. What is no URL is looked at as it is, and refused.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(format!("{scheme}://{authority}/"))
}
