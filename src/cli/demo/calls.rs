//! Files of recorded calls: one JSON object a line.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Call;
use super::failure::Failure;
use super::score::Way;
use crate::domain::canonical::{Canonical, Sha256Digest};
use crate::domain::ids::Name;
use crate::domain::state::EffectClass;
use crate::limits;

/// Largest file of calls.
const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// A line. Other members are for people and left alone.
#[derive(Deserialize)]
struct Line {
    run_id: Name,
    #[serde(rename = "seq")]
    _seq: u64,
    #[serde(default)]
    call_id: Option<Name>,
    tool: Name,
    effect: EffectClass,
    target: Name,
    arguments: Box<RawValue>,
}

/// The calls of one run, in order.
pub(super) type Run = Vec<Call>;

/// Everything that a file holds.
#[derive(Debug)]
pub(super) struct Calls {
    /// The runs, in the order of their first calls.
    pub(super) runs: Vec<Run>,
    /// The tools, each with the strongest class that a call of it has.
    pub(super) tools: BTreeMap<Name, EffectClass>,
}

impl Calls {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let fault = |why: &dyn Display| Failure::Calls(format!("{}: {why}", path.display()));
        let length = std::fs::metadata(path).map_err(|error| fault(&error))?.len();
        if length > FILE_BYTES {
            return Err(fault(&format_args!("has more than {FILE_BYTES} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|error| fault(&error))?;
        Self::parse(&bytes).map_err(|why| fault(&why))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut runs: Vec<Run> = Vec::new();
        let mut places: HashMap<Name, usize> = HashMap::new();
        let mut targets: HashMap<(Name, Name, Sha256Digest), Name> = HashMap::new();
        let mut tools: BTreeMap<Name, EffectClass> = BTreeMap::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let number = index.saturating_add(1);
            let call = call(line).map_err(|why| format!("line {number}: {why}"))?;
            let act = (call.run_id.clone(), call.tool.clone(), call.digest.clone());
            if *targets.entry(act).or_insert_with(|| call.target.clone()) != call.target {
                return Err(format!("line {number}: target: differs from that of the same call in an earlier line"));
            }
            let class = tools.entry(call.tool.clone()).or_insert(call.effect);
            *class = (*class).max(call.effect);
            let place = *places.entry(call.run_id.clone()).or_insert_with(|| {
                runs.push(Run::new());
                runs.len().saturating_sub(1)
            });
            if let Some(run) = runs.get_mut(place) {
                run.push(call);
            }
        }
        if runs.is_empty() {
            return Err("has no calls".to_owned());
        }
        // A tool has one class; when in doubt, the strongest.
        for call in runs.iter_mut().flatten() {
            call.effect = tools.get(&call.tool).copied().unwrap_or(call.effect);
        }
        Ok(Self { runs, tools })
    }

    /// How many calls there are, and how many of them are external.
    pub(super) fn counts(&self) -> (usize, usize) {
        let calls = || self.runs.iter().flatten();
        (calls().count(), calls().filter(|call| call.effect == EffectClass::External).count())
    }
}

fn call(line: &[u8]) -> Result<Call, String> {
    let mut reader = serde_json::Deserializer::from_slice(line);
    let line: Line = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let why = without_line(error.inner());
        if path == "." || path == "?" { why } else { format!("{path}: {why}") }
    })?;
    reader.end().map_err(|error| without_line(&error))?;
    if line.arguments.get().len() > limits::ARGUMENTS_BYTES {
        return Err(format!("arguments: must be at most {} bytes", limits::ARGUMENTS_BYTES));
    }
    let canonical = Canonical::of(&line.arguments)
        .map_err(|fault| format!("arguments: {} at {:?}", fault.reason, fault.pointer))?;
    let call = Call {
        run_id: line.run_id,
        id: line.call_id,
        tool: line.tool,
        effect: line.effect,
        target: line.target,
        digest: canonical.digest(),
        arguments: line.arguments,
    };
    for way in Way::ALL {
        call.operation(way.suffix(), 1).map_err(|fault| format!("its operation id {fault}"))?;
    }
    Ok(call)
}

/// The parser sees one line and calls it the first.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"run_id":"r","seq":0,"tool":"t","effect":"none","target":"x","arguments":{}}"#;

    fn parse(lines: &[&str]) -> Result<Calls, String> {
        Calls::parse(lines.join("\n").as_bytes())
    }

    #[test]
    fn runs_keep_their_order_and_tools_their_strongest_class() {
        let other = GOOD.replace(r#""r""#, r#""s""#);
        let external = GOOD.replace("none", "external");
        let calls = parse(&[GOOD, &other, "", &external]).unwrap();
        let lengths: Vec<_> = calls.runs.iter().map(Vec::len).collect();
        assert_eq!((lengths, calls.counts()), (vec![2, 1], (3, 3)));
        assert_eq!(calls.tools[&Name::new("t").unwrap()], EffectClass::External);
    }

    #[test]
    fn a_fault_names_its_line() {
        let long = "r".repeat(250);
        for (bad, expected) in [
            ("{".to_owned(), "line 3: EOF"),
            (GOOD.replace(r#""tool":"t","#, ""), "line 3: missing field `tool`"),
            (GOOD.replace("none", "some"), "line 3: effect: unknown variant `some`"),
            (GOOD.replace(r#""x""#, r#""""#), "line 3: target: must not be empty"),
            (GOOD.replace("{}", r#"{"a":1,"a":2}"#), "line 3: arguments: "),
            (GOOD.replace(r#""r""#, &format!("{long:?}")), "line 3: its operation id must be at most 256 bytes"),
            (GOOD.replace(r#""x""#, r#""y""#), "line 3: target: differs"),
            (format!("{GOOD} {GOOD}"), "line 3: trailing characters at column"),
        ] {
            let fault = parse(&[GOOD, "", &bad]).unwrap_err();
            assert!(fault.starts_with(expected), "{fault}");
        }
        assert_eq!(parse(&["", " "]).unwrap_err(), "has no calls");
    }
}
