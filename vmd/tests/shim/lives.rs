//! Lives of real VMs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use muster_types::api::Report;
use muster_types::ids::{Mib, Rank};
use muster_types::shim_api::{Console, ConsoleLog, List, Stop};
use muster_types::state::{VmPhase, marks};
use nix::sys::signal::Signal;

use crate::bench::{Bench, gone, has_qemu, vm};
use crate::guest;

fn two(dir: &std::path::Path) -> Vec<muster_types::api::VmPlan> {
    let disk = guest::disk(dir);
    vec![vm(3, &disk), vm(4, &disk)]
}

fn all(phase: VmPhase) -> impl Fn(&Report) -> bool {
    move |r| r.vms.iter().all(|v| v.phase == phase)
}

#[tokio::test]
async fn guests_boot_talk_and_power_off() {
    if !has_qemu("guests_boot_talk_and_power_off") {
        return;
    }
    let mut bench = Bench::start(two, None);
    let up = bench.report(all(VmPhase::Running)).await;
    for mark in [marks::OVERLAYS, marks::QEMU_STARTED, marks::RUNNING] {
        assert!(up.timeline.contains_key(mark), "{mark}: {:?}", up.timeline);
    }
    let first = &up.vms[0];
    assert_eq!((first.rank, first.memory), (Rank(3), Some(Mib(32))));
    assert_eq!(first.accel.as_deref(), Some("tcg"));
    assert_eq!(
        bench.user(|mut c| c.call(&List {})).await.unwrap().vms,
        up.vms
    );

    // vm3 echoes what is typed and powers off at `q`.
    let said = bench.user(|client| {
        let console = Console {
            rank: Rank(3),
            write: true,
        };
        let (attached, mut stream, mut bytes) = client.upgrade(&console).unwrap();
        assert!(attached.writer);
        let read = |stream: &mut UnixStream, bytes: &mut Vec<u8>, end: &str| {
            while !bytes.ends_with(end.as_bytes()) {
                let mut chunk = [0; 64];
                let n = stream.read(&mut chunk).unwrap();
                assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(bytes));
                bytes.extend_from_slice(&chunk[..n]);
            }
        };
        read(&mut stream, &mut bytes, guest::GREETING);
        stream.write_all(b"echo").unwrap();
        read(&mut stream, &mut bytes, "echo");
        stream.write_all(b"q").unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    let said = said.await;
    assert!(
        said.ends_with(&format!("{}echo", guest::GREETING)),
        "{said:?}"
    );
    let off = bench.phase(3, VmPhase::Stopped).await;
    assert_eq!(off.reason.as_deref(), Some("powered off by the guest"));
    assert_eq!(off.pid, None);
    let log = std::fs::read_to_string(off.console_log.unwrap()).unwrap();
    assert_eq!(log, said);
    let log = bench.user(|client| {
        let call = ConsoleLog {
            rank: Rank(3),
            follow: true,
        };
        let (_, mut stream, mut bytes) = client.upgrade(&call).unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    assert_eq!(log.await, said);

    // vm4 knows no ACPI, so that it is ended when its time is over.
    bench
        .user(|mut client| {
            let stop = Stop {
                ranks: vec![Rank(3), Rank(4)],
                force: false,
                timeout_ms: Some(300),
            };
            client.call(&stop).unwrap();
        })
        .await;
    let off = bench.phase(4, VmPhase::Stopped).await;
    assert_eq!(
        off.reason.as_deref(),
        Some("ended on request: the guest did not power down within 0.3 s")
    );
    assert!(bench.ended().await.success());
    bench.report(|r| r.last).await;
}

#[tokio::test]
async fn the_end_of_the_step_ends_the_vms() {
    if !has_qemu("the_end_of_the_step_ends_the_vms") {
        return;
    }
    let mut bench = Bench::start(two, None);
    let up = bench.report(all(VmPhase::Running)).await;
    // As Slurm does: every process of the step gets the signal.
    let begun = Instant::now();
    for vm in &up.vms {
        Bench::signal(vm.pid.unwrap(), Signal::SIGTERM);
    }
    Bench::signal(bench.shim.id().unwrap(), Signal::SIGTERM);
    assert!(bench.ended().await.success());
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    let last = bench.report(|r| r.last).await;
    for vm in last.vms {
        assert_eq!(vm.phase, VmPhase::Stopped);
        assert_eq!(vm.reason.as_deref(), Some("ended with the VM step"));
    }
    for vm in up.vms {
        gone(vm.pid.unwrap()).await;
    }
}

#[tokio::test]
async fn a_killed_qemu_is_told_and_the_others_go_on_without_vmd() {
    if !has_qemu("a_killed_qemu_is_told_and_the_others_go_on_without_vmd") {
        return;
    }
    let mut bench = Bench::start(two, None);
    let up = bench.report(all(VmPhase::Running)).await;
    bench.stop_vmd().await;
    let (killed, other) = (up.vms[0].pid.unwrap(), up.vms[1].pid.unwrap());
    Bench::signal(killed, Signal::SIGKILL);
    gone(killed).await;
    bench.start_vmd();
    let dead = bench.phase(3, VmPhase::Failed).await;
    assert_eq!(dead.reason.as_deref(), Some("QEMU killed by signal 9"));
    let alive = bench.phase(4, VmPhase::Running).await;
    assert_eq!(alive.pid, Some(other));

    // A new vmd is told without anything having changed.
    bench.stop_vmd().await;
    bench.start_vmd();
    bench.phase(4, VmPhase::Running).await;

    // QEMU does not outlive its shim.
    Bench::signal(bench.shim.id().unwrap(), Signal::SIGKILL);
    gone(other).await;
}

#[tokio::test]
async fn force_does_not_ask_the_guest() {
    if !has_qemu("force_does_not_ask_the_guest") {
        return;
    }
    let mut bench = Bench::start(|dir| vec![vm(0, &guest::disk(dir))], None);
    bench.phase(0, VmPhase::Running).await;
    bench
        .user(|mut client| {
            let stop = Stop {
                ranks: vec![Rank(0)],
                force: true,
                timeout_ms: None,
            };
            client.call(&stop).unwrap();
        })
        .await;
    let off = bench.phase(0, VmPhase::Stopped).await;
    assert_eq!(off.reason.as_deref(), Some("ended on request"));
    assert!(bench.ended().await.success());
}
