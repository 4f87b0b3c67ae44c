//! What the service tells about itself.

use serde::Serialize;

use super::args::ServeArgs;
use super::file::{Problems, Section};
use super::values;

/// Timings and traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TelemetrySettings {
    /// Whether the phases of requests are measured.
    pub timing: bool,
    /// Where traces go; nowhere where `None`.
    pub otlp_endpoint: Option<String>,
    /// Share of the traces beginning here that is sent.
    pub otlp_sample_percent: u8,
}

pub(super) fn telemetry(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> TelemetrySettings {
    let timing = file.pick(args.timing.as_ref(), "ACTONCE_TIMING", "timing", problems);
    let endpoint = file.pick(args.otlp_endpoint.as_ref(), "ACTONCE_OTLP_ENDPOINT", "otlp_endpoint", problems);
    let variable = "ACTONCE_OTLP_SAMPLE_PERCENT";
    let percent = file.pick(args.otlp_sample_percent.as_ref(), variable, "otlp_sample_percent", problems);
    let percent = percent.and_then(|given| given.parse(problems, |text| values::number(text, 0..=100))).unwrap_or(100);
    TelemetrySettings {
        timing: timing.and_then(|given| given.parse(problems, values::truth)).unwrap_or(true),
        otlp_endpoint: endpoint.and_then(|given| given.parse(problems, collector)),
        otlp_sample_percent: u8::try_from(percent).unwrap_or(100),
    }
}

/// The base URL of a collector. Its credentials have another place, as this is shown.
fn collector(text: &str) -> Result<String, &'static str> {
    let fault = "must be http:// or https:// with a host and a port, without credentials or a query";
    let url: http::Uri = text.parse().map_err(|_| fault)?;
    let is_good = matches!(url.scheme_str(), Some("http" | "https"))
        && url.host().is_some_and(|host| !host.is_empty())
        && url.query().is_none()
        && url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if is_good { Ok(text.to_owned()) } else { Err(fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_plain_base_url() {
        for good in ["http://127.0.0.1:4318", "https://collector.example/otlp/"] {
            assert_eq!(collector(good), Ok(good.to_owned()));
        }
        for bad in ["", "127.0.0.1:4318", "grpc://x:4317", "http://u:p@x", "http://x/?key=1", "http://"] {
            assert!(collector(bad).is_err(), "{bad}");
        }
    }
}
