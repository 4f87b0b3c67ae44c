//! Nothing outlives the test process, however it ends: children are killed and files removed by a
//! small shell that waits for the end of its standard input.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
live=' '
while read -r word pid; do
  case $word in
    +) live="$live$pid " ;;
    -) live=$(printf '%s' "$live" | sed "s/ $pid / /") ;;
  esac
done
for pid in $live; do kill -9 "$pid" 2>/dev/null; done
case $1 in */actonce-it.*) rm -rf -- "$1" ;; esac
"#;

struct Reaper {
    root: PathBuf,
    shell: Mutex<Child>,
}

fn reaper() -> &'static Reaper {
    static REAPER: OnceLock<Reaper> = OnceLock::new();
    REAPER.get_or_init(|| {
        let root = tempfile::Builder::new().prefix("actonce-it.").tempdir().expect("a temporary directory").keep();
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "actonce-it-reaper"]).arg(&root);
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh starts");
        Reaper { root, shell: Mutex::new(child) }
    })
}

fn tell(word: char, pid: u32) {
    let mut shell = reaper().shell.lock().unwrap_or_else(PoisonError::into_inner);
    let input = shell.stdin.as_mut().expect("its input is a pipe");
    writeln!(input, "{word} {pid}").expect("the reaper listens");
}

/// The directory of this test process; gone when it ends.
pub(crate) fn root() -> &'static Path {
    &reaper().root
}

/// A child that must not outlive this process.
pub(crate) fn adopt(pid: u32) {
    tell('+', pid);
}

/// A child that was waited for: its id may belong to another process soon.
pub(crate) fn release(pid: u32) {
    tell('-', pid);
}
