//! Keys that `--dev` makes once in the data directory, and keeps.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::file;
use super::secret::Secret;
use super::values;
use crate::{limits, support};

/// Signs the tokens of `--dev`.
pub(super) const SIGNING_KEY: &str = "dev-signing-key";
/// The data key of `--dev`.
pub(super) const DATA_KEY: &str = "dev-data-key";
/// What signs checkpoints and evidence under `--dev`.
pub(super) const EVIDENCE_KEY: &str = "dev-evidence-key";
/// The alias key of `--dev`.
pub(super) const ALIAS_KEY: &str = "dev-alias-key";

/// The key that is kept under a name, if there is one.
pub(super) fn existing(directory: &Path, name: &str) -> Result<Option<Secret<[u8; 32]>>, String> {
    let path = directory.join(name);
    if !path.try_exists().map_err(|error| format!("{} can't be read: {error}", path.display()))? {
        return Ok(None);
    }
    let text = file::read(&path, limits::KEY_FILE_BYTES)?;
    let key = values::key(&String::from_utf8_lossy(&text));
    key.map(Some).map_err(|fault| format!("{} {fault}; without the file a new key is made", path.display()))
}

/// The key that is kept under a name; a new one if there is none.
pub(super) fn key(directory: &Path, name: &str) -> Result<Secret<[u8; 32]>, String> {
    if let Some(key) = existing(directory, name)? {
        return Ok(key);
    }
    create(directory, name).map_err(|error| format!("no key can be made in {}: {error}", directory.display()))?;
    // Reads back what is there: another process may have been faster.
    existing(directory, name)?.ok_or_else(|| format!("{} has gone again", directory.join(name).display()))
}

fn create(directory: &Path, name: &str) -> io::Result<()> {
    make_directory(directory)?;
    let text = hex::encode(support::random_bytes::<32>()?) + "\n";
    let temporary = directory.join(format!(".{name}.{}", support::random_id()));
    let written = write(&temporary, &text).and_then(|()| publish(&temporary, &directory.join(name)));
    let removed = match fs::remove_file(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    written.and(removed).and_then(|()| sync_directory(directory))
}

/// Gives the finished file its name, unless a file has that name: the key that is there first
/// counts, as tokens may have been made with it.
fn publish(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // A file system without links.
        Err(_) => fs::rename(temporary, path),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_kept_and_private() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        assert!(existing(&directory, SIGNING_KEY).unwrap().is_none());
        let first = key(&directory, SIGNING_KEY).unwrap();
        assert_eq!(key(&directory, SIGNING_KEY).unwrap(), first);
        assert_ne!(key(&directory, DATA_KEY).unwrap(), first);
        let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(directory.join(SIGNING_KEY)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn starts_at_the_same_time_agree_on_one_key() {
        let root = tempfile::tempdir().unwrap();
        let made: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| key(root.path(), DATA_KEY).unwrap())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert!(made.iter().all(|key| *key == made[0]));
    }

    #[test]
    fn a_spoiled_key_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(DATA_KEY), "half").unwrap();
        assert!(key(root.path(), DATA_KEY).unwrap_err().contains("dev-data-key must be 32 random bytes"));
        assert_eq!(fs::read_to_string(root.path().join(DATA_KEY)).unwrap(), "half");
    }
}
