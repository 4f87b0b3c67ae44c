//! What this machine gives: room, a file system that can lock, and open files.

use std::path::Path;

use super::Findings;
use crate::app::open_files;
use crate::config::Config;
use crate::limits;
use crate::store::open::DatabaseUrl;

/// Less than this is soon gone.
const LITTLE_MIB: u64 = 1024;
/// With less than this a checkpoint of the log may not end.
const NONE_MIB: u64 = 128;

/// File systems that promise less than a local disk does, by their number.
const SHARED: [(u64, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
];

pub(super) fn judge(url: &DatabaseUrl, config: &Config, findings: &mut Findings) {
    if let DatabaseUrl::Sqlite(path) = url {
        let place = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if let Some(folder) = place.ancestors().skip(1).find(|folder| folder.exists()) {
            disk(folder, findings);
        }
    }
    files(open_files(), config.front.max_connections, findings);
}

fn disk(folder: &Path, findings: &mut Findings) {
    match rustix::fs::statvfs(folder) {
        Ok(found) => room(found.f_bavail.saturating_mul(found.f_frsize) / (1024 * 1024), findings),
        Err(error) => {
            let advice = ("nobody knows how much room there is", "see that the directory can be read");
            findings.warn("disk", format!("{} can't be asked: {error}", folder.display()), advice);
        }
    }
    #[cfg(target_os = "linux")]
    if let Ok(found) = rustix::fs::statfs(folder) {
        file_system(u64::try_from(found.f_type).unwrap_or(0), findings);
    }
}

fn room(free_mib: u64, findings: &mut Findings) {
    let finding = format!("{free_mib} MiB free for the database");
    let meaning = "on a full disk nothing can be recorded, and so nothing granted";
    if free_mib < NONE_MIB {
        findings.fail("disk", finding, (meaning, "make room now"));
    } else if free_mib < LITTLE_MIB {
        findings.warn("disk", finding, (meaning, "make room soon"));
    } else {
        findings.ok("disk", finding, "there is room to record");
    }
}

fn file_system(kind: u64, findings: &mut Findings) {
    if let Some((_, name)) = SHARED.iter().find(|(number, _)| *number == kind) {
        let advice =
            ("its locks and flushes may be no real ones: two writers, or lost commits", "put the file on a local disk");
        findings.warn("disk", format!("the database is on {name}"), advice);
    }
}

fn files(may: Option<u64>, connections: usize, findings: &mut Findings) {
    let needed = connections.saturating_add(limits::SPARE_CONNECTIONS).saturating_add(limits::DESCRIPTORS_KEPT);
    match may {
        Some(may) if usize::try_from(may).is_ok_and(|may| may < needed) => {
            let advice = (
                "the service takes fewer connections than it is configured for",
                "raise the limit of open files (LimitNOFILE, ulimit -n), or lower ACTONCE_MAX_CONNECTIONS",
            );
            findings.warn("open_files", format!("{may} may be open, {connections} connections need {needed}"), advice);
        }
        _ => findings.ok("open_files", "enough may be open", "all configured connections fit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn level(look: impl FnOnce(&mut Findings)) -> Option<Level> {
        let mut findings = Findings::default();
        look(&mut findings);
        findings.0.first().map(|finding| finding.level)
    }

    #[test]
    fn little_room_is_told_before_there_is_none() {
        for (mib, expected) in [(0, Level::Fail), (127, Level::Fail), (128, Level::Warn), (1023, Level::Warn)] {
            assert_eq!(level(|findings| room(mib, findings)), Some(expected), "{mib}");
        }
        assert_eq!(level(|findings| room(1024, findings)), Some(Level::Ok));
    }

    #[test]
    fn file_systems_of_other_machines_are_told() {
        assert_eq!(level(|findings| file_system(0x6969, findings)), Some(Level::Warn));
        assert_eq!(level(|findings| file_system(0xef53, findings)), None, "ext4");
    }

    #[test]
    fn connections_that_do_not_fit_are_told() {
        assert_eq!(level(|findings| files(Some(1024), 20_000, findings)), Some(Level::Warn));
        assert_eq!(level(|findings| files(Some(1024), 500, findings)), Some(Level::Ok));
        assert_eq!(level(|findings| files(None, 20_000, findings)), Some(Level::Ok));
    }
}
