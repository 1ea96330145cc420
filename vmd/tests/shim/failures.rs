//! VMs that do not start; a script stands in for QEMU.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use muster_types::api::VmPlan;
use muster_types::ids::Mib;
use muster_types::request::Accel;
use muster_types::state::{VmPhase, VmStatus};

use crate::bench::{Bench, vm};
use crate::guest;

/// A directory whose `qemu-system-x86_64` is this shell script.
fn stand_in(script: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qemu-system-x86_64");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// The states in which the VMs of a shim end that exits with status 1.
async fn failed(make: impl FnOnce(&Path) -> Vec<VmPlan>, script: &str) -> Vec<VmStatus> {
    let qemu = stand_in(script);
    let mut bench = Bench::start(make, Some(qemu.path()));
    assert_eq!(bench.ended().await.code(), Some(1));
    bench.report(|r| r.last).await.vms
}

fn reason(vm: &VmStatus) -> &str {
    assert_eq!(vm.phase, VmPhase::Failed);
    vm.reason.as_deref().unwrap()
}

#[tokio::test]
async fn a_qemu_that_dies_leaves_its_last_words() {
    let make = |dir: &Path| vec![vm(0, &guest::disk(dir))];
    let vms = failed(
        make,
        "echo first >&2; echo 'qemu: no such machine' >&2; exit 1",
    )
    .await;
    assert_eq!(
        reason(&vms[0]),
        "QEMU exited with status 1: first / qemu: no such machine"
    );
}

#[tokio::test]
async fn a_monitor_that_speaks_nonsense_is_told() {
    // The monitor's number stands in the argument of the first -chardev.
    let script = r#"for a; do case $a in socket,id=qmp,fd=*) fd=${a##*=};; esac; done
        exec perl -e 'open(my $f, ">&=", $ARGV[0]) or die; syswrite $f, "nonsense\n"; sleep 60' "$fd""#;
    let make = |dir: &Path| vec![vm(0, &guest::disk(dir))];
    let vms = failed(make, script).await;
    assert!(
        reason(&vms[0]).starts_with("QEMU did not start the guest: QMP message does not parse"),
        "{}",
        reason(&vms[0])
    );
}

#[tokio::test]
async fn a_qemu_that_loses_its_mind_is_killed() {
    // Answers like QEMU until its guest runs, then speaks nonsense and stays.
    let script = r#"for a; do case $a in socket,id=qmp,fd=*) fd=${a##*=};; esac; done
        exec perl -e '
            open(my $f, "+>&=", $ARGV[0]) or die;
            syswrite $f, "{\"QMP\": {}}\n";
            for my $id (0 .. 2) {
                sysread $f, my $command, 4096;
                syswrite $f, "{\"return\": {\"running\": true}, \"id\": $id}\n";
            }
            syswrite $f, "nonsense\n";
            sleep 60' "$fd""#;
    let qemu = stand_in(script);
    let mut bench = Bench::start(|dir| vec![vm(0, &guest::disk(dir))], Some(qemu.path()));
    assert!(bench.ended().await.success());
    let last = bench.report(|r| r.last).await;
    assert!(
        reason(&last.vms[0]).starts_with("QEMU was killed, as it could not be talked to"),
        "{}",
        reason(&last.vms[0])
    );
}

#[tokio::test]
async fn an_image_that_is_gone_is_named() {
    let vms = failed(
        |_| vec![vm(0, &PathBuf::from("/nonexistent/image"))],
        "exit 1",
    )
    .await;
    assert!(
        reason(&vms[0]).contains("/nonexistent/image"),
        "{}",
        reason(&vms[0])
    );
}

#[tokio::test]
async fn memory_that_is_not_there_fails_all() {
    let make = |dir: &Path| {
        let disk = guest::disk(dir);
        let mut vms = vec![vm(0, &disk), vm(1, &disk)];
        vms[1].spec.memory = Some(Mib(1 << 30));
        vms
    };
    let vms = failed(make, "exit 1").await;
    for vm in &vms {
        assert!(
            reason(vm).contains("1073741856 MiB of RAM"),
            "{}",
            reason(vm)
        );
    }
}

#[tokio::test]
async fn kvm_is_insisted_on_or_missed_with_a_warning() {
    if muster_vmd::shim::kvm::probe(Path::new("/dev/kvm")).is_ok() {
        println!("skipped: KVM works here");
        return;
    }
    let make = |dir: &Path| {
        let disk = guest::disk(dir);
        let mut vms = vec![vm(0, &disk), vm(1, &disk)];
        vms[0].spec.accel = Accel::Kvm;
        vms[1].spec.accel = Accel::Auto;
        vms
    };
    let vms = failed(make, "exit 1").await;
    assert!(reason(&vms[0]).starts_with("the template asks for KVM, which node1 has not: "));
    assert!(
        vms[1].warnings[0].starts_with("no KVM on node1: "),
        "{:?}",
        vms[1].warnings
    );
    assert_eq!(vms[1].accel.as_deref(), Some("tcg"));
}

#[tokio::test]
async fn a_node_without_vms_is_done_at_once() {
    let mut bench = Bench::start(|_| vec![], None);
    assert!(bench.ended().await.success());
    assert!(bench.report(|r| r.last).await.vms.is_empty());
}
