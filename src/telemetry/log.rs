//! Log lines with the context of the request that they are about.
//!
//! The context is looked up when a line is written, so a request that logs nothing pays nothing for it.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::probe;

/// One JSON object per line, with `request_id`, `trace_id` and `tenant`.
#[derive(Debug)]
pub struct JsonLine(pub Format<Json>);

/// A line for people, with the same at its end.
#[derive(Debug)]
pub struct PrettyLine(pub Format<Full>);

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::with_capacity(256);
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let Some(open) = line.trim_end().strip_suffix('}') else { return writer.write_str(&line) };
        writer.write_str(open)?;
        if let Some((request, trace, tenant)) = identity() {
            write!(writer, ",\"request_id\":\"{request}\",\"trace_id\":\"{trace}\"")?;
            // An event may name its tenant by itself.
            if let Some(tenant) = tenant.filter(|_| !open.contains("\"tenant\":")) {
                let tenant = serde_json::to_string(&tenant).map_err(|_| fmt::Error)?;
                write!(writer, ",\"tenant\":{tenant}")?;
            }
        }
        writer.write_str("}\n")
    }
}

impl<S, N> FormatEvent<S, N> for PrettyLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::with_capacity(256);
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(line.trim_end())?;
        if let Some((request, trace, tenant)) = identity() {
            write!(writer, " request_id={request} trace_id={trace}")?;
            if let Some(tenant) = tenant {
                write!(writer, " tenant={tenant:?}")?;
            }
        }
        writer.write_char('\n')
    }
}

/// The request's id (its span), its trace, and whose it is.
fn identity() -> Option<(String, String, Option<String>)> {
    probe::with(|probe| {
        let trace = probe.trace();
        let tenant = probe.tenant().map(|tenant| tenant.as_str().to_owned());
        (format!("{:016x}", trace.span), format!("{:032x}", trace.id), tenant)
    })
}
