//! The commands about the configuration, run as a user runs them, on a site in a directory.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// What a command did.
#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

/// A site with an image `tiny`, two templates of its own and one of the user's.
fn site() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for dir in ["etc", "home", "images"] {
        std::fs::create_dir(root.path().join(dir)).unwrap();
    }
    let write = |name: &str, text: &str| {
        let text = text.replace("ROOT", &root.path().display().to_string());
        std::fs::write(root.path().join(name), text).unwrap();
    };
    write(
        "etc/repos.yaml",
        "repos: [{name: lab, path: ROOT/images}]\n",
    );
    write(
        "etc/templates.yaml",
        "base: {description: The base of all, image: tiny, accel: kvm, memory: 1G}\nweb: {inherits: base, cpus: 2}\n",
    );
    write(
        "home/templates.yaml",
        "mine: {inherits: web, memory: 512M}\n",
    );
    write(
        "etc/networks.yaml",
        "nat:\n  type: ethernet\n  settings:\n    dev-prefix: nat\n    reverse-nat: {vm-port: 22, min-host-port: 60222, max-host-port: 60322}\n",
    );
    write(
        "etc/resources.yaml",
        "default: {networks: [nat], default: true}\nalone: {}\n",
    );
    root
}

fn muster(root: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(args)
        .env("MUSTER_CONF_DIR", root.join("etc"))
        .env("MUSTER_USER_CONF_DIR", root.join("home"))
        .current_dir(root)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.replace(&root.display().to_string(), "ROOT")
    };
    Ran {
        status: output.status.code().unwrap(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{ran:?}");
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(value["version"], 1);
    value
}

/// Puts an empty disk into the site's repository.
fn import(root: &Path) {
    std::fs::write(root.join("disk.raw"), vec![0; 1 << 20]).unwrap();
    let ran = muster(root, &["image", "import", "disk.raw", "lab:tiny"]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn a_good_configuration_is_checked_and_shown() {
    let site = site();
    import(site.path());
    let ran = muster(site.path(), &["config", "check"]);
    assert_eq!(
        (ran.status, ran.out.as_str()),
        (
            0,
            "5 files in ROOT/etc and ROOT/home: 0 errors, 0 warnings\n"
        ),
        "{ran:?}"
    );
    let shown = muster(site.path(), &["config", "show"]);
    for part in [
        "site's directory  ROOT/etc",
        "read            ROOT/home/templates.yaml",
        "etcd-client-port    2379",
        "lab   ROOT/images",
        "default       yes      nat",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let shown = json(&muster(site.path(), &["config", "show", "--json"]));
    assert_eq!(shown["templates"], 3);
}

#[test]
fn mistakes_have_places_and_a_status() {
    let site = site();
    let dir = site.path().join("other");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("templates.yaml"), "a: {imge: x}\n").unwrap();
    std::fs::write(dir.join("network.yaml"), "").unwrap();
    let ran = muster(site.path(), &["config", "check", "other"]);
    assert_eq!(ran.status, 1);
    assert_eq!(
        ran.out,
        "warning: other/network.yaml: muster does not read this file (did you mean 'networks.yaml'?); it reads batch.yaml, networks.yaml, policy.yaml, repos.yaml, resources.yaml, templates.yaml\n\
         other/templates.yaml:1:5: a.imge: unknown key (did you mean 'image'?)\n\
         1 file in other: 1 error, 1 warning\n"
    );
    assert_eq!(ran.err, "muster: the configuration has an error\n");
    let ran = muster(site.path(), &["config", "check", "other", "--json"]);
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ran.status, 1);
    assert_eq!(value["findings"][1]["line"], 1);
    assert_eq!(value["findings"][1]["key"], "a.imge");
    let ran = muster(site.path(), &["config", "check", "nowhere"]);
    assert_eq!(ran.err, "muster: nowhere: no such directory\n");
}

#[test]
fn each_file_has_a_schema() {
    let site = site();
    for file in [
        "templates",
        "networks",
        "resources",
        "repos",
        "batch",
        "policy.yaml",
    ] {
        let ran = muster(site.path(), &["config", "schema", file]);
        let schema: Value = serde_json::from_str(&ran.out).unwrap();
        let name = file.trim_end_matches(".yaml");
        assert_eq!(schema["title"], format!("Muster: {name}.yaml"));
    }
    let ran = muster(site.path(), &["config", "schema", "template"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.err
            .contains("no file 'template' (did you mean 'templates'?)"),
        "{ran:?}"
    );
}

#[test]
fn a_template_says_where_its_keys_come_from() {
    let site = site();
    let ran = muster(site.path(), &["template", "show", "mine"]);
    for line in [
        "inherits     web",
        "image              tiny                         'base', ROOT/etc/templates.yaml:1",
        "cpus               2                            'web', ROOT/etc/templates.yaml:2",
        "memory             512M                         ROOT/home/templates.yaml:1",
        "disk-model         virtio                       default",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    let ran = muster(site.path(), &["template", "show", "mine", "--yaml"]);
    assert_eq!(
        ran.out,
        "mine:\n  image: tiny\n  cpus: 2\n  memory: \"512M\"\n  accel: kvm\n"
    );
    let shown = json(&muster(
        site.path(),
        &["template", "show", "mine", "--json"],
    ));
    assert_eq!(shown["template"]["settings"]["cpus"]["template"], "web");
    let listed = json(&muster(site.path(), &["template", "list", "--json"]));
    assert_eq!(listed["templates"][1]["tree"], "user");
    let ran = muster(site.path(), &["template", "show", "mien"]);
    assert_eq!(ran.status, 3);
    assert_eq!(
        ran.err,
        "muster: no template 'mien' (did you mean 'mine'?)\n"
    );
}

#[test]
fn networks_are_listed_and_shown() {
    let site = site();
    let ran = muster(site.path(), &["network", "list"]);
    assert_eq!(
        ran.out,
        "NAME  TYPE      LAYER  ADDRESSES      VMS    RESOURCE SETS\n\
         nat   ethernet  L3     10.200.0.0/16  65532  default\n"
    );
    let ran = muster(site.path(), &["network", "show", "nat"]);
    assert!(
        ran.out.contains("    min-host-port: 60222\n") || ran.out.contains("min-host-port: 60222"),
        "{ran:?}"
    );
    assert!(
        ran.out
            .starts_with("# ROOT/etc/networks.yaml:1\n# in resource sets: default\n")
    );
    let shown = json(&muster(site.path(), &["network", "show", "nat", "--json"]));
    assert_eq!(shown["network"]["definition"]["mtu"], 1500);
    let ran = muster(site.path(), &["network", "show", "nta"]);
    assert_eq!(ran.status, 3);
    assert_eq!(
        ran.err,
        "muster: no network 'nta' (did you mean 'nat'?); there are nat\n"
    );
}

#[test]
fn a_plan_shows_placement_addresses_and_command_lines() {
    let site = site();
    import(site.path());
    let args = ["plan", "web:2,mine", "--nodes", "a:4,b:4:8G"];
    let ran = muster(site.path(), &args);
    assert_eq!(ran.status, 0, "{ran:?}");
    let table = "\
VM   NODE  VCPUS  MEMORY    TEMPLATE  IMAGE
vm0  a     2      1024 MiB  web       lab:tiny@0
vm1  a     2      1024 MiB  web       lab:tiny@0
vm2  b     2      512 MiB   mine      lab:tiny@0

VM   NETWORK  ADDRESS        MAC                MTU
vm0  nat      10.200.0.1/16  52:54:00:00:00:00  1450
vm1  nat      10.200.0.2/16  52:54:00:00:00:01  1450
vm2  nat      10.200.0.3/16  52:54:00:00:00:02  1450
";
    assert!(ran.out.contains(table), "{}", ran.out);
    for part in [
        "\n# node b: 4 CPUs, 8192 MiB\n",
        "srun --jobid=1 --overlap --nodes=2",
        "ip link add nat-1-x0 type vxlan id 4096 local 192.0.2.1",
        "qemu-img create -q -f qcow2 -F qcow2 -b ROOT/images/data/",
        "qemu-system-x86_64 -name guest=job1-vm2,debug-threads=on",
        "-smp cpus=2,sockets=1,cores=2,threads=1 -m size=512M",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let brief = muster(
        site.path(),
        &["plan", "web:2,mine", "--nodes", "a:4,b:4:8G", "--brief"],
    );
    assert!(brief.out.ends_with(table), "{}", brief.out);
    let args = ["plan", "web:2,mine", "--nodes", "a:4,b:4:8G", "--json"];
    let plan = json(&muster(site.path(), &args));
    assert_eq!(plan["vms"][2]["networks"][0]["address"], "10.200.0.3/16");
    assert_eq!(plan["nodes"][1]["commands"][0]["vm"], "vm2");
}

#[test]
fn a_plan_refuses_what_a_submission_refuses() {
    let site = site();
    import(site.path());
    let say = |args: &[&str]| {
        let ran = muster(site.path(), args);
        assert_eq!(ran.out, "", "{ran:?}");
        (ran.status, ran.err)
    };
    let (status, err) = say(&["plan", "wbe"]);
    assert_eq!(status, 1);
    assert!(
        err.contains("--vm: no template 'wbe' (did you mean 'web'?)"),
        "{err}"
    );
    let (status, err) = say(&["plan", "web:3", "--nodes", "a:4"]);
    assert_eq!(status, 1);
    assert!(err.contains("3 VMs need 6 CPUs"), "{err}");
    let (_, err) = say(&["plan", "web", "--nodes", "a:4:600M"]);
    assert!(err.contains("divide the memory of node a"), "{err}");
    let (status, err) = say(&["plan", "web", "--nodes", "a"]);
    assert_eq!(status, 2);
    assert!(err.contains("the number of CPUs is missing"), "{err}");
    std::fs::write(site.path().join("etc/policy.yaml"), "max-vms-per-job: 1\n").unwrap();
    let ran = muster(site.path(), &["plan", "web:2", "--brief"]);
    assert!(ran.err.contains("the policy refuses this:"), "{ran:?}");
    assert!(ran.err.contains("policy.yaml:1"), "{ran:?}");
}
