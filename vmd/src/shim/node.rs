//! All VMs of the node, from the launch plan to the last report.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_qemu::Machine;
use muster_qemu::memory::{self as ram, MemoryError, Overhead};
use muster_types::api::{LaunchPlan, VmPlan};
use muster_types::ids::{Mib, Rank};
use muster_types::request::Accel;
use muster_types::shim_api::SOCKET_NAME;
use muster_types::state::VmPhase;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use super::Task;
use super::board::Board;
use super::console::Console;
use super::control::{Control, ControlError, VmHandle};
use super::memory::{self, LimitError, Roots};
use super::report::Reporter;
use super::signals::Signals;
use super::vm::{self, Links, Vm};
use super::{kvm, overlay};
use crate::chain::chain;

/// How long vmd may take to take the last report.
const LAST_REPORT: Duration = Duration::from_secs(5);

/// Why the node's part cannot even begin.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Why a VM is not begun; the text is its reason.
#[derive(Debug, thiserror::Error)]
enum RefusedError {
    #[error("find out the job's memory on this node")]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Directory(#[from] overlay::OverlayError),
    #[error("{0}")]
    Kvm(String),
    #[error("the VM has no image")]
    NoImage,
}

/// Runs the plan's VMs until all are over or a signal comes; whether all of them started.
///
/// # Errors
/// The control socket cannot be made. What befalls a VM is its state, not an error.
pub async fn run(task: &Task, plan: LaunchPlan, mut signals: Signals) -> Result<bool, NodeError> {
    let board = Arc::new(Board::new(&plan.vms));
    let reporter = Reporter::new(task.job, task.vmd_socket.clone(), board.subscribe());
    let reporter = tokio::spawn(reporter.run());
    let (end_step, step_ends) = watch::channel(false);
    let mut vms = JoinSet::new();
    let mut control = Control::new(Arc::clone(&board), plan.stop_timeout_ms);
    let socket = Path::new(&plan.run_dir).join(SOCKET_NAME);

    let mut all_started = true;
    match prepare(&plan).await {
        Ok(prepared) => {
            for (vm, memory) in plan.vms.iter().zip(prepared.memory) {
                let accel = choose(&plan, vm, memory, &prepared.kvm, &board);
                let begun = accel.and_then(|accel| describe(&plan, vm, memory, accel));
                match begun {
                    Ok(vm) => {
                        let (handle, links) = connect(&vm, &board, step_ends.clone());
                        control.add(vm.rank, handle);
                        vms.spawn(vm::run(vm, links));
                    }
                    Err(e) => {
                        all_started = false;
                        fail(&board, vm.rank, &chain(&e));
                    }
                }
            }
        }
        Err(e) => {
            all_started = plan.vms.is_empty();
            for vm in &plan.vms {
                fail(&board, vm.rank, &chain(&e));
            }
        }
    }
    let control = tokio::spawn(control.bind(&socket)?.serve());
    loop {
        tokio::select! {
            ended = vms.join_next() => match ended {
                Some(started) => all_started &= started.unwrap_or(false),
                None => break,
            },
            () = signals.next() => {
                end_step.send_replace(true);
            }
        }
    }
    board.close();
    // It ends by itself when the last report is taken.
    if tokio::time::timeout(LAST_REPORT, reporter).await.is_err() {
        warn!("vmd did not take the last report in time");
    }
    control.abort();
    Ok(all_started)
}

fn fail(board: &Board, rank: Rank, reason: &str) {
    board.update(rank, |status| {
        status.phase = VmPhase::Failed;
        status.reason = Some(reason.to_owned());
    });
}

/// What is found out once for all VMs.
struct Prepared {
    memory: Vec<Mib>,
    kvm: Result<(), String>,
}

async fn prepare(plan: &LaunchPlan) -> Result<Prepared, RefusedError> {
    let wanted: Vec<Option<Mib>> = plan.vms.iter().map(|vm| vm.spec.memory).collect();
    let available = memory::available(&Roots::default())?;
    let memory = ram::divide(&wanted, available, overhead(plan))?;
    let kvm = if plan.vms.iter().any(|vm| vm.spec.accel != Accel::Tcg) {
        // The calls may take a while where KVM is itself emulated.
        let probe = tokio::task::spawn_blocking(|| kvm::probe(Path::new(kvm::DEVICE)));
        match probe.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(chain(&e)),
            Err(_) => Err("the probe was broken off".to_owned()),
        }
    } else {
        Ok(())
    };
    Ok(Prepared { memory, kvm })
}

fn overhead(plan: &LaunchPlan) -> Overhead {
    Overhead {
        fixed_mib: plan.memory_overhead_mib,
        permille: plan.memory_overhead_permille,
    }
}

/// How the guest's code runs; told to the user, with a warning where it will be slow.
fn choose(
    plan: &LaunchPlan,
    vm: &VmPlan,
    memory: Mib,
    probed: &Result<(), String>,
    board: &Board,
) -> Result<muster_qemu::Accel, RefusedError> {
    let choice = kvm::choose(vm.spec.accel, probed, &plan.node).map_err(RefusedError::Kvm)?;
    let accel = if choice.kvm {
        muster_qemu::Accel::Kvm
    } else {
        ram::emulation(memory, overhead(plan))
    };
    board.update(vm.rank, |status| {
        status.accel = Some(accel.name().to_owned());
        status.memory = Some(memory);
        status.warnings.extend(choice.warning);
    });
    Ok(accel)
}

fn describe(
    plan: &LaunchPlan,
    vm: &VmPlan,
    memory: Mib,
    accel: muster_qemu::Accel,
) -> Result<Vm, RefusedError> {
    let dir = PathBuf::from(&plan.scratch_dir).join(vm.rank.name());
    overlay::directory(&dir)?;
    let image = vm.spec.image.clone().ok_or(RefusedError::NoImage)?;
    Ok(Vm {
        job: plan.key.job,
        rank: vm.rank,
        image,
        vcpus: vm.vcpus,
        memory,
        accel,
        dir,
        program: OsString::from(Machine::PROGRAM),
    })
}

/// Makes what a VM's task and the rest of the shim share.
fn connect(vm: &Vm, board: &Arc<Board>, step_ends: watch::Receiver<bool>) -> (VmHandle, Links) {
    let (console, input) = Console::new(vm.dir.join("console.log"));
    let (wish, wishes) = mpsc::channel(4);
    let path = console.log_path().display().to_string();
    board.update(vm.rank, |status| status.console_log = Some(path));
    let handle = VmHandle {
        console: Arc::clone(&console),
        wishes: wish,
    };
    let links = Links {
        board: Arc::clone(board),
        console: (console, input),
        wishes,
        step_ends,
    };
    (handle, links)
}
