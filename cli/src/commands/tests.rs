//! Commands against a scripted vmd and a scripted shim on real sockets.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use clap::Parser;
use muster_types::ids::JobId;
use muster_types::shim_api;
use muster_types::state::{ClusterView, VmPhase};
use serde_json::{Value, json};

use super::{console, ps, show, stop, wait};
use crate::context::Context;
use crate::context::tests::context;
use crate::exit;
use crate::render::samples::{cluster, golden};

/// Answers each call, on any number of connections, as `answer` says; after a reply to a call with
/// `upgrade` it writes `console` and closes.
fn serve(
    path: &Path,
    console: &'static [u8],
    answer: impl Fn(&Value) -> Result<Value, (&'static str, &'static str)> + Send + 'static,
) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve_one(stream.unwrap(), console, &answer);
        }
    });
}

fn serve_one(
    mut stream: UnixStream,
    console: &[u8],
    answer: &impl Fn(&Value) -> Result<Value, (&'static str, &'static str)>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut bytes = Vec::new();
        if reader.read_until(0, &mut bytes).unwrap() == 0 {
            return;
        }
        bytes.pop();
        let call: Value = serde_json::from_slice(&bytes).unwrap();
        let reply = match answer(&call) {
            Ok(parameters) => json!({ "parameters": parameters }),
            Err((name, message)) => json!({
                "error": format!("io.muster.Vmd.{name}"),
                "parameters": {"message": message},
            }),
        };
        let mut bytes = serde_json::to_vec(&reply).unwrap();
        bytes.push(0);
        if call["upgrade"] == true {
            bytes.extend_from_slice(console);
            stream.write_all(&bytes).unwrap();
            return;
        }
        stream.write_all(&bytes).unwrap();
    }
}

/// A vmd that knows some clusters, all of them the caller's.
fn vmd(context: &Context, clusters: Vec<ClusterView>) {
    serve(&context.vmd_socket, b"", move |call| {
        let wanted = &call["parameters"]["job"];
        match call["method"].as_str().unwrap() {
            "io.muster.Vmd.ListClusters" => Ok(json!({ "clusters": clusters })),
            "io.muster.Vmd.GetCluster" => clusters
                .iter()
                .find(|c| json!(c.key.job) == *wanted)
                .map(|c| json!({ "cluster": c }))
                .ok_or(("NoSuchCluster", "job 9 has no virtual cluster here")),
            other => panic!("{other}"),
        }
    });
}

/// A shim on this host that runs the VMs of node1; its calls are handed to `seen`.
fn shim(context: &Context, console: &'static [u8], seen: impl Fn(&Value) + Send + 'static) {
    let path = crate::shim::socket_path(&context.run_dir, JobId(42));
    serve(&path, console, move |call| {
        seen(call);
        match call["method"].as_str().unwrap() {
            "io.muster.Shim.List" => {
                let vm = cluster().vms.swap_remove(0).status;
                Ok(json!({ "vms": [vm] }))
            }
            "io.muster.Shim.Console" => Ok(json!({ "writer": true })),
            _ => Ok(json!({})),
        }
    });
}

#[derive(Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn args<A: clap::Args>(line: &str) -> A {
    let words = std::iter::once("x").chain(line.split_whitespace());
    Line::<A>::parse_from(words).args
}

/// Runs a command and returns what it printed, or its exit status and message.
fn outcome(run: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> Result<String, (u8, String)> {
    let mut out = Vec::new();
    match run(&mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(e) => Err((exit::code(&e), format!("{e:#}"))),
    }
}

#[test]
fn ps_and_show_print_what_vmd_says() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    vmd(&context, vec![cluster()]);
    let text = outcome(|out| ps::run(&args(""), &context, out)).unwrap();
    assert!(text.contains("42   alice  tiny:2"), "{text}");
    let text = outcome(|out| ps::run(&args("--json"), &context, out)).unwrap();
    golden("ps.json", &text);
    let text = outcome(|out| show::run(&args("vm1 --json"), &context, out)).unwrap();
    golden("show-vm1.json", &text);
    let text = outcome(|out| show::run(&args("-j 42 vm1"), &context, out)).unwrap();
    golden("show-vm1.txt", &text);
}

#[test]
fn what_does_not_exist_is_three() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    vmd(&context, vec![cluster()]);
    let (code, text) = outcome(|out| show::run(&args("-j 9"), &context, out)).unwrap_err();
    assert_eq!(code, 3);
    assert_eq!(text, "job 9 has no virtual cluster here");
    let (code, text) = outcome(|out| console::run(&args("vm5"), &context, out)).unwrap_err();
    assert_eq!(
        (code, text.as_str()),
        (3, "no vm5 in this cluster: it has vm0 to vm1")
    );
    let in_a_job = Context {
        slurm_job: Some("9".into()),
        ..context
    };
    assert_eq!(
        outcome(|out| show::run(&args(""), &in_a_job, out))
            .unwrap_err()
            .0,
        3
    );
}

#[test]
fn without_vmd_the_socket_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let (code, text) = outcome(|out| ps::run(&args(""), &context, out)).unwrap_err();
    assert_eq!(code, 1);
    let socket = context.vmd_socket.display();
    assert!(
        text.contains(&format!("cannot reach vmd at {socket}: ")),
        "{text}"
    );
    assert!(
        text.ends_with("(is the vmd service running on this host?)"),
        "{text}"
    );
}

#[test]
fn each_end_of_a_wait_has_its_code() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (outcome_name, code)) in [("reached", 0), ("failed", 1), ("timed-out", 4)]
        .into_iter()
        .enumerate()
    {
        let context = Context {
            vmd_socket: dir.path().join(format!("{i}.sock")),
            ..context(dir.path())
        };
        serve(&context.vmd_socket, b"", move |call| {
            assert_eq!(call["parameters"]["until"], "ready");
            Ok(json!({"outcome": outcome_name, "reason": "vm1 on node2 is starting"}))
        });
        match outcome(|out| wait::run(&args("-j 42 --timeout 5s"), &context, out)) {
            Ok(text) => assert_eq!((code, text.as_str()), (0, "all VMs of job 42 are ready\n")),
            Err((found, text)) => {
                assert_eq!(found, code);
                assert!(text.contains("vm1 on node2 is starting"), "{text}");
            }
        }
    }
}

#[test]
fn a_log_of_this_host_comes_from_the_shim_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    vmd(&context, vec![cluster()]);
    shim(&context, b"\x00boot\xff\r\nlogin: ", |_| {});
    let mut out = Vec::new();
    console::run(&args("-l"), &context, &mut out).unwrap();
    assert_eq!(out, b"\x00boot\xff\r\nlogin: ");
}

#[test]
fn a_vm_that_is_off_leaves_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let mut c = cluster();
    let log = dir.path().join("console.log");
    std::fs::write(&log, "panic").unwrap();
    c.vms[0].status.phase = VmPhase::Failed;
    c.vms[0].status.reason = Some("QEMU killed by signal 9".into());
    c.vms[0].status.console_log = Some(log.display().to_string());
    vmd(&context, vec![c]);
    let text = outcome(|out| console::run(&args("-l vm0"), &context, out)).unwrap();
    assert_eq!(text, "panic");
    let (code, text) = outcome(|out| console::run(&args(""), &context, out)).unwrap_err();
    assert_eq!(code, 1);
    assert!(
        text.contains("vm0 on node1 is failed: QEMU killed by signal 9"),
        "{text}"
    );
}

#[test]
fn stop_goes_to_the_vms_that_run() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    let mut c = cluster();
    c.vms[1].status.phase = VmPhase::Stopped;
    vmd(&context, vec![c]);
    let (sender, calls) = std::sync::mpsc::channel();
    shim(&context, b"", move |call| {
        drop(sender.send(call.clone()));
    });
    let text = outcome(|out| stop::run(&args("all --timeout 3s"), &context, out)).unwrap();
    assert_eq!(text, "vm1 on node2 is off already\nvm0 on node1: off\n");
    let stopped: Vec<Value> = calls
        .try_iter()
        .filter(|c| c["method"] == shim_api::INTERFACE.to_owned() + ".Stop")
        .map(|c| c["parameters"].clone())
        .collect();
    assert_eq!(
        stopped,
        [json!({"ranks": [0], "force": false, "timeout_ms": 3000})]
    );
}

#[test]
fn a_node_that_cannot_be_reached_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    vmd(&context, vec![cluster()]);
    let (_, text) = outcome(|out| console::run(&args("-l vm1"), &context, out)).unwrap_err();
    assert!(
        text.starts_with("read the console log of vm1 on node2: start "),
        "{text}"
    );
    assert!(text.contains("no-srun to reach node node2"), "{text}");
}
