//! Runs `qemu-img` (qemu-img(1)).
//!
//! Paths are passed absolute: a name that starts with `/` is never taken for a protocol (`nbd:`) or a
//! `json:` description, whatever colons and commas it holds.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ImageError;
use crate::format::DiskFormat;
use crate::process::{QemuImgError, SHORT, collect, rendered, run};

/// How long a conversion may stand still before it counts as stuck (a dead file server, say). It
/// reports each percent: at 20 MB/s one percent of 2 TB takes 17 minutes.
const STALL: Duration = Duration::from_secs(30 * 60);

/// What `qemu-img info` says of a disk file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Info {
    /// Format, any that QEMU knows.
    pub(crate) format: String,
    /// Size of the disk in bytes.
    pub(crate) virtual_size: u64,
    #[serde(default)]
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    dirty_flag: bool,
    #[serde(default)]
    format_specific: Option<FormatSpecific>,
}

#[derive(Debug, Clone, Deserialize)]
struct FormatSpecific {
    #[serde(default)]
    data: FormatData,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FormatData {
    #[serde(default)]
    corrupt: bool,
    #[serde(default)]
    data_file: Option<serde_json::Value>,
}

impl Info {
    /// Whether the file is a whole qcow2 image by itself that needs no repair.
    pub(crate) fn is_standalone_qcow2(&self) -> bool {
        let elsewhere = self.backing_filename.is_some()
            || self.specific().is_some_and(|d| d.data_file.is_some());
        self.format == DiskFormat::Qcow2.name() && !elsewhere && !self.dirty_flag
    }

    /// Why no VM can boot from it, if so.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        if self.encrypted {
            return Some("it is encrypted, which is not supported");
        }
        if self.specific().is_some_and(|d| d.corrupt) {
            return Some("it is marked corrupt; see qemu-img check -r");
        }
        None
    }

    fn specific(&self) -> Option<&FormatData> {
        self.format_specific.as_ref().map(|s| &s.data)
    }
}

/// Asks what a file is; without `format` by its content.
pub(crate) fn info(path: &Path, format: Option<DiskFormat>) -> Result<Info, ImageError> {
    let mut args: Vec<OsString> = ["info", "--output=json"].map(Into::into).into();
    if let Some(format) = format {
        args.extend(["-f", format.name()].map(Into::into));
    }
    args.push(path.into());
    run(&args, SHORT, &mut |_| ControlFlow::Continue(()))
        .and_then(|out| answer(&args, &out))
        .map_err(named("examine disk", path))
}

/// What `qemu-img check` says of the metadata of a disk file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Check {
    #[serde(default)]
    corruptions: u64,
    #[serde(default)]
    check_errors: u64,
}

/// Looks through the metadata of a qcow2; says what is wrong, if anything. Clusters
/// that are allocated and not used are not.
pub(crate) fn fault(path: &Path) -> Result<Option<String>, ImageError> {
    let mut args: Vec<OsString> = ["check", "--output=json", "-f", "qcow2"]
        .map(Into::into)
        .into();
    args.push(path.into());
    let ended = collect(&args, STALL, &mut |_| ControlFlow::Continue(()));
    let check: Check = ended
        .and_then(|ended| {
            // 2: corrupt, 3: leaked clusters; both with the figures.
            let with_figures = matches!(ended.status.code(), Some(0 | 2 | 3));
            if with_figures {
                answer(&args, &ended.stdout)
            } else {
                Err(ended.failure(&args))
            }
        })
        .map_err(named("check disk", path))?;
    let faults = check.corruptions + check.check_errors;
    Ok((faults > 0).then(|| {
        format!("qemu-img check finds {faults} faults in it: it is damaged or was cut short")
    }))
}

fn answer<T: DeserializeOwned>(args: &[OsString], out: &[u8]) -> Result<T, QemuImgError> {
    serde_json::from_slice(out).map_err(|e| QemuImgError::Answer {
        command: rendered(args),
        why: e.to_string(),
    })
}

/// Makes a qcow2 file at `target`, which exists and is empty, on top of `backing`.
pub(crate) fn create_overlay(
    target: &Path,
    backing: &Path,
    format: DiskFormat,
) -> Result<(), ImageError> {
    let mut args: Vec<OsString> = ["create", "-q", "-f", "qcow2", "-F", format.name(), "-b"]
        .map(Into::into)
        .into();
    args.push(backing.into());
    args.push(target.into());
    run(&args, SHORT, &mut |_| ControlFlow::Continue(()))
        .map(drop)
        .map_err(named("create overlay", target))
}

/// Converts a disk file to a qcow2 at `target`, which exists; `progress` is told the share done, 0 to
/// 1, and says whether to go on.
pub(crate) fn convert(
    source: &Path,
    format: DiskFormat,
    target: &Path,
    progress: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> Result<(), ImageError> {
    // -W: writes need not be in order; -m: so many of them at once.
    let mut args: Vec<OsString> = ["convert", "-p", "-W", "-m", "8", "-f", format.name()]
        .map(Into::into)
        .into();
    args.extend(["-O", "qcow2"].map(Into::into));
    args.push(source.into());
    args.push(target.into());
    let mut percents = Percents::default();
    let mut done = 0.0;
    let result = run(&args, STALL, &mut |bytes| {
        done = percents.push(bytes).unwrap_or(done);
        progress(done / 100.0)
    });
    match result {
        Err(QemuImgError::Interrupted) => Err(ImageError::Interrupted),
        other => other.map(drop).map_err(named("convert disk", source)),
    }
}

/// Reads the progress that qemu-img writes: `    (12.34/100%)\r`.
#[derive(Debug, Default)]
struct Percents {
    rest: String,
}

impl Percents {
    /// Takes output; returns the newest whole figure in it.
    fn push(&mut self, bytes: &[u8]) -> Option<f64> {
        self.rest.push_str(&String::from_utf8_lossy(bytes));
        let end = self.rest.rfind("/100%)")?;
        let start = self.rest[..end].rfind('(')? + 1;
        let value = self.rest[start..end].trim().parse().ok();
        self.rest.drain(..end + "/100%)".len());
        value.filter(|v| (0.0..=100.0).contains(v))
    }
}

fn named(doing: &'static str, path: &Path) -> impl FnOnce(QemuImgError) -> ImageError {
    move |source| ImageError::QemuImg {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_in_any_pieces() {
        let mut p = Percents::default();
        assert_eq!(p.push(b"    (0.00/100%)\r    (12."), Some(0.0));
        assert_eq!(p.push(b"5"), None);
        assert_eq!(p.push(b"0/100%)\r    (99.00/100%)\r"), Some(99.0));
        assert_eq!(p.push(b"(900/100%)"), None);
        assert_eq!(p.push(b"nonsense"), None);
    }

    #[test]
    fn a_failure_carries_the_command_and_its_words() {
        let error = info(Path::new("/nonexistent,x:y.img"), None).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(error.to_string(), "examine disk /nonexistent,x:y.img");
        assert!(source.contains("qemu-img info --output=json"), "{source}");
        assert!(source.contains("No such file"), "{source}");
    }
}
