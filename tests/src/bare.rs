//! QEMU by itself: what a start is measured against. Takes the command line of a QEMU that a shim started, gives it descriptors and
//! disks of its own, and times it to the guest's CPU running.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// How long QEMU may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// A QEMU and our ends of its sockets; killed when dropped.
struct Bare {
    child: Child,
    qmp: BufReader<UnixStream>,
    _others: Vec<UnixStream>,
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It is ours alone, and its disk is a copy.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Starts `count` QEMUs at once and returns the microseconds until the last one's guest runs.
///
/// # Errors
/// The command line cannot be read, or a QEMU does not start.
pub fn time(cmdline: &Path, disk: &Path, count: u32) -> Result<u128> {
    let bytes = std::fs::read(cmdline).with_context(|| format!("read {}", cmdline.display()))?;
    let words: Vec<String> = String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .split('\0')
        .map(str::to_owned)
        .collect();
    let disks: Result<Vec<_>> = (0..count)
        .map(|i| {
            let copy = disk.with_extension(format!("{i}.qcow2"));
            std::fs::copy(disk, &copy).with_context(|| format!("copy {}", disk.display()))?;
            Ok(copy)
        })
        .collect();
    let disks = disks?;
    let begin = Instant::now();
    let started: Result<Vec<Bare>> = disks.iter().map(|disk| start(&words, disk)).collect();
    let mut started = started?;
    for bare in &mut started {
        cont(bare)?;
    }
    let elapsed = begin.elapsed();
    drop(started);
    for disk in disks {
        std::fs::remove_file(&disk).with_context(|| format!("remove {}", disk.display()))?;
    }
    Ok(elapsed.as_micros())
}

fn start(words: &[String], disk: &Path) -> Result<Bare> {
    let (program, words) = words.split_first().context("the command line is empty")?;
    let mut ends = Vec::new();
    let mut qmp = None;
    let mut kept = Vec::new();
    let mut arguments = Vec::new();
    for word in words {
        let word = match word.split_once("filename=") {
            Some((before, after)) if after.contains("disk.qcow2") => {
                let rest = after.split_once("disk.qcow2").map_or("", |(_, rest)| rest);
                format!("{before}filename={}{rest}", disk.display())
            }
            _ => word.clone(),
        };
        let Some((before, _)) = word.split_once(",fd=") else {
            arguments.push(word);
            continue;
        };
        let (ours, theirs) = UnixStream::pair().context("make a socket pair")?;
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).context("let QEMU inherit a socket")?;
        arguments.push(format!("{before},fd={}", theirs.as_raw_fd()));
        kept.push(theirs);
        if before.contains("id=qmp") {
            qmp = Some(ours);
        } else {
            ends.push(ours);
        }
    }
    let qmp = qmp.context("the command line has no QMP socket")?;
    qmp.set_read_timeout(Some(ANSWER))
        .context("set a time limit")?;
    let child = Command::new(program)
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    Ok(Bare {
        child,
        qmp: BufReader::new(qmp),
        _others: ends,
    })
}

/// Says what a shim says to QEMU, and waits for the same answers.
fn cont(bare: &mut Bare) -> Result<()> {
    line_with(bare, "\"QMP\"")?;
    for command in ["qmp_capabilities", "cont"] {
        let text = format!("{{\"execute\":\"{command}\"}}\n");
        bare.qmp
            .get_mut()
            .write_all(text.as_bytes())
            .with_context(|| format!("send {command}"))?;
        line_with(bare, "\"return\"")?;
    }
    Ok(())
}

fn line_with(bare: &mut Bare, word: &str) -> Result<()> {
    // QEMU says a few events between its answers, not hundreds.
    for _ in 0..100 {
        let mut line = String::new();
        if bare.qmp.read_line(&mut line).context("read from QEMU")? == 0 {
            bail!("QEMU ended before it said {word}");
        }
        if line.contains("\"error\"") {
            bail!("QEMU refused: {line}");
        }
        if line.contains(word) {
            return Ok(());
        }
    }
    bail!("QEMU did not say {word}")
}
