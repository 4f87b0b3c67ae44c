//! Panics in the log: where, and never what was said. A panic's message may hold what was being worked on
//! (law 11), also that of a library.

use std::panic::{self, PanicHookInfo};

/// From here on a panic of any thread is one line of the log, with its place. For the process of the service,
/// after its log was started.
pub fn log_places_only() {
    panic::set_hook(Box::new(report));
}

fn report(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let (file, line) = info.location().map_or(("unknown", 0), |place| (place.file(), place.line()));
    metrics::counter!("actonce_panics_total").increment(1);
    tracing::error!(file, line, thread = thread.name().unwrap_or("unnamed"), "a panic; its message is not logged");
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Set in the process that panics.
    const CHILD: &str = "ACTONCE_TEST_PANICS";
    const CONTENT: &str = "hunter2 of a customer";

    /// Not a test of its own: what the process of the test below does.
    #[test]
    fn the_process_that_panics() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(std::io::stderr).init();
        super::log_places_only();
        let thread = std::thread::Builder::new().name("worker-7".to_owned());
        let panicked = thread.spawn(|| std::panic::panic_any(CONTENT.to_owned())).unwrap().join();
        assert!(panicked.is_err());
        let caught = std::panic::catch_unwind(|| {
            let index = CONTENT.len();
            assert!(CONTENT.get(index..).is_none(), "{CONTENT}");
        });
        assert!(caught.is_err());
    }

    #[test]
    fn a_panic_is_a_line_of_the_log_without_its_message() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "panics::tests::the_process_that_panics", "--nocapture"]).env(CHILD, "1");
        child.env("RUST_BACKTRACE", "1");
        let output = child.output().unwrap();
        let (log, out) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success() && out.contains("1 passed"), "{out}\n{log}");
        assert!(!log.contains("hunter2") && !out.contains("hunter2"), "{log}\n{out}");
        let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines.len(), 2, "{log}");
        for line in &lines {
            assert!(line["level"] == "ERROR" && line["file"] == file!() && line["line"].as_u64() > Some(0), "{line}");
        }
        assert_eq!(lines[0]["thread"], "worker-7");
    }
}
