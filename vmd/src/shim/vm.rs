//! The life of one VM, in one task.
//!
//! ```text
//! preparing (overlay) -> starting (QEMU, QMP, cont) -> running -> stopped | failed
//!                                                        |  ^
//!                                 stopping: powerdown -> quit -> SIGKILL, each with its deadline
//! ```

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use muster_qemu::qmp::{Event, Shutdown};
use muster_qemu::{Accel, Fd, Machine};
use muster_types::ids::{JobId, Mib, Rank};
use muster_types::image::ImageRef;
use muster_types::state::{VmPhase, marks};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::board::Board;
use super::console::{Console, Input, log};
use super::ending::{Asked, death, ending};
use super::overlay::{self, OverlayError};
use super::process::{Qemu, SpawnError};
use super::qmp::{Monitor, QmpError};
use crate::chain::chain;

/// How long QEMU may take from its start to its answer; a machine under load takes seconds.
const START: Duration = Duration::from_secs(60);

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(10);

/// How long a command may take that ends the VM.
const LAST_COMMAND: Duration = Duration::from_millis(500);

/// How long QEMU may take to quit before it is killed.
const QUIT: Duration = Duration::from_secs(2);

/// How long the console's last bytes may take to be in the log after QEMU's end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A wish of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Power down within this time, else end.
    PowerDown(Duration),
    /// End at once.
    End,
}

/// What a VM is made of.
#[derive(Debug)]
pub struct Vm {
    /// The job.
    pub job: JobId,
    /// Which VM.
    pub rank: Rank,
    /// What it boots from.
    pub image: ImageRef,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its RAM.
    pub memory: Mib,
    /// How its guest's code runs.
    pub accel: Accel,
    /// Its directory; exists.
    pub dir: PathBuf,
    /// The QEMU to start.
    pub program: OsString,
}

/// What a VM's task is connected to.
#[derive(Debug)]
pub struct Links {
    /// Where its state is told.
    pub board: Arc<Board>,
    /// Its console and the guest's side of it.
    pub console: (Arc<Console>, Input),
    /// What the user wishes.
    pub wishes: mpsc::Receiver<Wish>,
    /// Becomes true when the whole step ends.
    pub step_ends: watch::Receiver<bool>,
}

/// Why a VM did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    #[error("make a socket pair for QEMU")]
    Socket(#[source] io::Error),
    #[error("the overlay's path {0} is not UTF-8")]
    Path(PathBuf),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{0}")]
    Died(String),
    #[error("QEMU did not start the guest")]
    Qmp(#[from] QmpError),
    #[error("QEMU says that the guest does not run: {0}")]
    NotRunning(String),
}

/// A QEMU whose guest is under way.
struct Started {
    qemu: Qemu,
    monitor: Monitor,
}

/// Runs a VM from its overlay to its end; whether its guest has run, or was not wanted any more.
pub async fn run(vm: Vm, links: Links) -> bool {
    let Links {
        board,
        console: (console, input),
        mut wishes,
        mut step_ends,
    } = links;
    let rank = vm.rank;
    let mut task = Task {
        vm: &vm,
        board: &board,
        console: &console,
        input: Some(input),
        pump: None,
    };
    let log = tokio::spawn(write_log(Arc::clone(&console), Arc::clone(&board), rank));
    let start = tokio::select! {
        started = task.start() => Ok(started),
        asked = cancelled(&mut wishes, &mut step_ends) => Err(asked),
    };
    let (came_up, phase, reason) = match start {
        Ok(Ok(started)) => {
            let (phase, reason) = guard(&vm, &board, started, &mut wishes, &mut step_ends).await;
            (true, phase, reason)
        }
        Ok(Err(e)) => (false, VmPhase::Failed, chain(&e)),
        // Its QEMU, if there was one, was killed when the start was dropped.
        Err(asked) => {
            let reason = match asked {
                Asked::StepEnd => "ended with the VM step before it ran",
                _ => "ended on request before it ran",
            };
            (true, VmPhase::Stopped, reason.to_owned())
        }
    };
    // Whoever learns that the VM is over finds its last words, on the console and in the log.
    let last_words = async {
        if let Some(pump) = task.pump.take() {
            drop(pump.await);
        }
        console.close();
        drop(log.await);
    };
    if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
        console.close();
        board.warn(rank, "the end of the console's log may be missing");
    }
    board.update(rank, |status| {
        status.phase = phase;
        status.reason = Some(reason);
        status.pid = None;
    });
    came_up
}

/// Waits until the VM is not wanted any more, whatever it is at.
async fn cancelled(
    wishes: &mut mpsc::Receiver<Wish>,
    step_ends: &mut watch::Receiver<bool>,
) -> Asked {
    tokio::select! {
        () = ends(step_ends) => Asked::StepEnd,
        Some(_) = wishes.recv() => Asked::End,
    }
}

/// Waits until the step ends.
async fn ends(step_ends: &mut watch::Receiver<bool>) {
    if step_ends.wait_for(|ends| *ends).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Keeps the console's log; a log that cannot be written is a warning.
async fn write_log(console: Arc<Console>, board: Arc<Board>, rank: Rank) {
    if let Some(why) = console.write_log(log::FILE_BYTES).await {
        board.warn(rank, &format!("the console is not logged any more: {why}"));
    }
}

struct Task<'a> {
    vm: &'a Vm,
    board: &'a Arc<Board>,
    console: &'a Arc<Console>,
    input: Option<Input>,
    pump: Option<JoinHandle<()>>,
}

impl Task<'_> {
    /// From nothing to a guest that runs.
    async fn start(&mut self) -> Result<Started, StartError> {
        let (vm, board) = (self.vm, self.board);
        board.update(vm.rank, |s| s.phase = VmPhase::Preparing);
        let disk = vm.dir.join("disk.qcow2");
        overlay::create(&vm.image, &disk).await?;
        board.passed(vm.rank, marks::OVERLAYS);

        let (qmp, qemu_qmp) = StdUnixStream::pair().map_err(StartError::Socket)?;
        let (console, qemu_console) = StdUnixStream::pair().map_err(StartError::Socket)?;
        let machine = Machine {
            name: format!("job{}-{}", vm.job, vm.rank),
            accel: vm.accel,
            vcpus: vm.vcpus,
            memory: vm.memory,
            boot_overlay: disk
                .into_os_string()
                .into_string()
                .map_err(|path| StartError::Path(path.into()))?,
            qmp: Fd(qemu_qmp.as_raw_fd()),
            console: Fd(qemu_console.as_raw_fd()),
            agent: None,
            spare_ports: 0,
        };
        let inherited = [&qemu_qmp, &qemu_console];
        let mut qemu = Qemu::start(&vm.program, &machine.argv(), &inherited)?;
        // Closed here, so that QEMU's end is seen as theirs.
        drop((qemu_qmp, qemu_console));
        let pid = qemu.pid();
        board.update(vm.rank, |s| {
            s.phase = VmPhase::Starting;
            s.pid = Some(pid);
        });
        if let Some(input) = self.input.take() {
            let stream = adopt(console)?;
            let console = Arc::clone(self.console);
            self.pump = Some(tokio::spawn(
                async move { console.pump(stream, input).await },
            ));
        }
        let mut monitor = Monitor::new(adopt(qmp)?);
        let went = tokio::select! {
            went = self.go(&mut monitor) => went,
            status = qemu.wait() => return Err(last_words(&mut qemu, status).await),
        };
        match went {
            Ok(()) => Ok(Started { qemu, monitor }),
            // A closed monitor is a QEMU about to be gone, and what it said last is the reason.
            Err(StartError::Qmp(QmpError::Closed)) => {
                match tokio::time::timeout(QUIT, qemu.wait()).await {
                    Ok(status) => Err(last_words(&mut qemu, status).await),
                    Err(_) => Err(StartError::Qmp(QmpError::Closed)),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a QEMU that is stopped run its guest.
    async fn go(&self, monitor: &mut Monitor) -> Result<(), StartError> {
        let (vm, board) = (self.vm, self.board);
        monitor.greet(START).await?;
        board.passed(vm.rank, marks::QEMU_STARTED);
        monitor.execute(&qapi_qmp::cont {}, COMMAND).await?;
        let state = monitor.execute(&qapi_qmp::query_status {}, COMMAND).await?;
        if state["running"] != true {
            return Err(StartError::NotRunning(state["status"].to_string()));
        }
        board.update(vm.rank, |s| s.phase = VmPhase::Running);
        Ok(())
    }
}

async fn last_words(qemu: &mut Qemu, status: io::Result<ExitStatus>) -> StartError {
    let words = qemu.last_words().await;
    StartError::Died(match status {
        Ok(status) => death(status, &words),
        Err(e) => format!("wait for QEMU: {e}"),
    })
}

fn adopt(stream: StdUnixStream) -> Result<UnixStream, StartError> {
    stream.set_nonblocking(true).map_err(StartError::Socket)?;
    UnixStream::from_std(stream).map_err(StartError::Socket)
}

/// What a running VM was told, and until when it has time.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Up,
    PoweringDown { until: Instant, limit: Duration },
    Quitting { until: Instant },
    Killed,
}

impl Stage {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::PoweringDown { until, .. } | Self::Quitting { until } => Some(until),
            Self::Up | Self::Killed => None,
        }
    }
}

/// Watches a running VM until its QEMU is gone; the phase and reason that it ends in.
async fn guard(
    vm: &Vm,
    board: &Board,
    started: Started,
    wishes: &mut mpsc::Receiver<Wish>,
    step_ends: &mut watch::Receiver<bool>,
) -> (VmPhase, String) {
    let Started { qemu, monitor } = started;
    let mut guard = Guard {
        vm,
        board,
        qemu,
        monitor: Some(monitor),
        stage: Stage::Up,
        asked: Asked::Nothing,
        shutdown: None,
        broken: None,
    };
    let mut step_over = false;
    let status = loop {
        let deadline = guard.stage.deadline();
        tokio::select! {
            status = guard.qemu.wait() => break status,
            event = next_event(&mut guard.monitor) => guard.event(event),
            Some(wish) = wishes.recv() => guard.wish(wish).await,
            () = ends(step_ends), if !step_over => {
                step_over = true;
                guard.asked = Asked::StepEnd;
                guard.quit().await;
            }
            () = until(deadline) => guard.too_late().await,
        }
    };
    // What QEMU said before it ended may still be in the socket.
    while let Some(monitor) = &mut guard.monitor {
        let rest = tokio::time::timeout(LAST_COMMAND, monitor.event()).await;
        match rest {
            Ok(event) => guard.event(event),
            Err(_) => break,
        }
    }
    if let (Asked::Nothing, Stage::Killed, Some(broken)) = (guard.asked, guard.stage, guard.broken)
    {
        let reason = format!("QEMU was killed, as it could not be talked to any more: {broken}");
        return (VmPhase::Failed, reason);
    }
    match status {
        Ok(status) => {
            let words = guard.qemu.last_words().await;
            ending(status, guard.shutdown.as_ref(), guard.asked, &words)
        }
        Err(e) => (VmPhase::Failed, format!("wait for QEMU: {e}")),
    }
}

async fn next_event(monitor: &mut Option<Monitor>) -> Result<Event, QmpError> {
    match monitor {
        Some(monitor) => monitor.event().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

struct Guard<'a> {
    vm: &'a Vm,
    board: &'a Board,
    qemu: Qemu,
    /// None after it failed; then only QEMU's end tells more.
    monitor: Option<Monitor>,
    stage: Stage,
    asked: Asked,
    shutdown: Option<Shutdown>,
    /// Why the monitor failed.
    broken: Option<String>,
}

impl Guard<'_> {
    fn event(&mut self, event: Result<Event, QmpError>) {
        let rank = self.vm.rank;
        match event {
            Ok(event) => {
                debug!(%rank, event.name, %event.data, "event");
                if let Some(shutdown) = event.shutdown() {
                    self.shutdown = Some(shutdown);
                } else if event.name == "BLOCK_IO_ERROR" && event.data["action"] == "stop" {
                    let why = event.data["reason"].as_str().unwrap_or("I/O error");
                    let paused = format!("the VM is paused: its disk cannot be written ({why})");
                    self.board.warn(rank, &paused);
                }
            }
            Err(e) => {
                debug!(%rank, error = chain(&e), "monitor is gone");
                self.broken = Some(chain(&e));
                self.monitor = None;
                // A QEMU that does not speak any more cannot be asked to stop; one that ends is
                // about to be gone.
                if !matches!(self.stage, Stage::Killed) {
                    let until = Instant::now() + QUIT;
                    self.stage = Stage::Quitting { until };
                }
            }
        }
    }

    async fn wish(&mut self, wish: Wish) {
        match (wish, self.stage) {
            (Wish::PowerDown(limit), Stage::Up | Stage::PoweringDown { .. }) => {
                self.asked = Asked::PowerDown;
                self.stopping();
                let until = Instant::now() + limit;
                self.stage = Stage::PoweringDown { until, limit };
                if let Some(monitor) = &mut self.monitor {
                    let down = qapi_qmp::system_powerdown {};
                    if let Err(e) = monitor.execute(&down, LAST_COMMAND).await {
                        debug!(rank = %self.vm.rank, error = chain(&e), "powerdown");
                    }
                }
            }
            (Wish::End, Stage::Up | Stage::PoweringDown { .. }) => {
                self.asked = Asked::End;
                self.quit().await;
            }
            (_, Stage::Quitting { .. } | Stage::Killed) => {}
        }
    }

    /// The deadline of the stage has passed.
    async fn too_late(&mut self) {
        match self.stage {
            Stage::PoweringDown { limit, .. } => {
                self.asked = Asked::TimedOut(limit);
                self.quit().await;
            }
            Stage::Quitting { .. } => {
                self.stage = Stage::Killed;
                self.qemu.kill();
            }
            Stage::Up | Stage::Killed => {}
        }
    }

    async fn quit(&mut self) {
        self.stopping();
        let until = Instant::now() + QUIT;
        self.stage = Stage::Quitting { until };
        if let Some(monitor) = &mut self.monitor {
            let answer = monitor.execute(&qapi_qmp::quit {}, LAST_COMMAND).await;
            // QEMU may close its end before it answers.
            if let Err(e) = answer {
                debug!(rank = %self.vm.rank, error = chain(&e), "quit");
            }
        }
    }

    fn stopping(&self) {
        self.board
            .update(self.vm.rank, |s| s.phase = VmPhase::Stopping);
    }
}
