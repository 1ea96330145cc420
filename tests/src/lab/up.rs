//! Bringing the lab up, in the order of dependence and with a wait for each thing to be really ready; and taking it down.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::config::{self, Cgroups, ConfigFile};
use super::{LABEL, Lab, Label, NAME, Options, QUICK, State, User, container, find};
use crate::artifacts::{Artifacts, Profile, install};
use crate::cache::{Cache, fingerprint};
use crate::docker::{self, docker};
use crate::images;
use crate::packages;
use crate::progress::Progress;
use crate::wait::{Look, wait_for};

const SETUP: &str = include_str!("../../lab/setup.sh");
const PKI: &str = include_str!("../../lab/pki.sh");
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Volumes that all hosts share: `-v` arguments without the prefix of their names.
const VOLUMES: [(&str, &str); 2] = [("home", "/home"), ("images", "/srv/muster/images")];

/// All that a lab is made of, ready to be started.
struct Parts {
    image: String,
    artifacts: Option<Artifacts>,
    /// Names of images and their files.
    guests: Vec<(&'static str, PathBuf)>,
    files: Vec<ConfigFile>,
}

pub(super) fn up(options: &Options, cache: &Cache, progress: &Progress) -> Result<Lab> {
    packages::require_root("the lab")?;
    docker::ensure(cache, progress)?;
    let parts = Parts::make(options, cache, progress)?;
    let label = Label {
        options: options.clone(),
        fingerprint: parts.fingerprint(options)?,
    };
    if let Some((found, _)) = find()? {
        if found == label && Lab::attach().is_ok() {
            progress.say(format_args!("the lab is up already: {options}"));
            return Lab::attach();
        }
        let why = if found.options == *options {
            "other programs or a host that does not run"
        } else {
            "other options"
        };
        progress.say(format_args!(
            "there is a lab with {why} ({}); taking it down first",
            found.options
        ));
        down(cache, progress)?;
    } else {
        // What an interrupted start may have left.
        remove(cache)?;
    }
    progress.stage(format_args!("bringing up the lab: {options}"), || {
        start(&parts, &label, cache, progress)
    })
}

impl Parts {
    fn make(options: &Options, cache: &Cache, progress: &Progress) -> Result<Self> {
        let image = images::lab(options.suite, cache, progress)?;
        let cgroups = if Path::new(CGROUP_ROOT).join("cgroup.controllers").exists() {
            Cgroups::V2
        } else {
            Cgroups::V1
        };
        let files = config::files(options, cgroups);
        if options.without_vmd {
            return Ok(Self {
                image,
                artifacts: None,
                guests: Vec::new(),
                files,
            });
        }
        let artifacts = Artifacts::build(
            Profile::of(options.release),
            &[options.suite],
            cache,
            progress,
        )?;
        let guests = options
            .guests
            .iter()
            .map(|guest| Ok((guest.name(), guest.build(cache, progress)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            image,
            artifacts: Some(artifacts),
            guests,
            files,
        })
    }

    fn fingerprint(&self, options: &Options) -> Result<String> {
        let mut parts = vec![
            self.image.clone(),
            SETUP.to_owned(),
            PKI.to_owned(),
            format!("{:?}", self.files),
        ];
        parts.extend(
            self.guests
                .iter()
                .map(|(_, path)| path.display().to_string()),
        );
        if let Some(artifacts) = &self.artifacts {
            parts.push(artifacts.fingerprint(options.suite)?);
        }
        Ok(fingerprint(parts))
    }

    /// Puts everything that is installed in a directory that all containers see as /lab.
    fn stage(&self, stage: &Path, options: &Options) -> Result<()> {
        fs::create_dir_all(stage).with_context(|| format!("make {}", stage.display()))?;
        // Keys are in it.
        fs::set_permissions(stage, Permissions::from_mode(0o700))
            .with_context(|| format!("restrict {}", stage.display()))?;
        write(&stage.join("setup.sh"), SETUP.as_bytes(), 0o755)?;
        write(&stage.join("pki.sh"), PKI.as_bytes(), 0o755)?;
        let mut key = [0; 1024];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut key))
            .context("read /dev/urandom")?;
        write(&stage.join("munge.key"), &key, 0o600)?;
        for file in &self.files {
            write(
                &stage.join("root").join(file.path.trim_start_matches('/')),
                file.text.as_bytes(),
                file.mode,
            )?;
        }
        let Some(artifacts) = &self.artifacts else {
            return Ok(());
        };
        for program in &artifacts.programs {
            install(
                program,
                &stage
                    .join("bin")
                    .join(program.file_name().context("a program without a name")?),
            )?;
        }
        let plugin = artifacts
            .plugins
            .get(&options.suite)
            .context("the plugin was not built for this suite")?;
        install(plugin, &stage.join("bin/spank_muster.so"))
    }
}

fn write(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let directory = path.parent().context("a file without a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    fs::write(path, contents).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}

fn stage_directory(cache: &Cache) -> PathBuf {
    cache.path("lab")
}

fn start(parts: &Parts, label: &Label, cache: &Cache, progress: &Progress) -> Result<Lab> {
    let options = &label.options;
    let lab = Lab {
        options: options.clone(),
    };
    let stage = stage_directory(cache);
    parts.stage(&stage, options)?;
    if options.state == State::Etcd && !options.without_vmd {
        certificates(&parts.image, &stage)?;
    }
    docker(["network", "create", "--label", LABEL, NAME])
        .deadline(QUICK)
        .run()?;
    for (volume, _) in VOLUMES {
        docker([
            "volume",
            "create",
            "--label",
            LABEL,
            &format!("{NAME}-{volume}"),
        ])
        .deadline(QUICK)
        .run()?;
    }
    let hosts = options.hosts();
    progress.say(format_args!("starting the hosts {}", hosts.join(", ")));
    on_all(&hosts, |host| {
        run_container(host, parts, label, &stage)?;
        lab.root(host, "/lab/setup.sh").map(drop)
    })?;
    if !options.without_vmd {
        start_muster(&lab, parts, progress)?;
    }
    start_slurm(&lab, progress)?;
    Ok(lab)
}

/// Does `work` for all hosts at once.
fn on_all(hosts: &[String], work: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .iter()
            .map(|host| (host, scope.spawn(move || work(host))))
            .collect();
        for (host, thread) in threads {
            match thread.join() {
                Ok(done) => done.with_context(|| format!("set up the host {host}"))?,
                Err(_) => return Err(anyhow!("setting up the host {host} panicked")),
            }
        }
        Ok(())
    })
}

fn run_container(host: &str, parts: &Parts, label: &Label, stage: &Path) -> Result<()> {
    let mut run = docker([
        "run",
        "--detach",
        "--init",
        "--network",
        NAME,
        "--hostname",
        host,
        "--network-alias",
        host,
    ])
    .args([
        "--name",
        &container(host),
        "--label",
        &format!("{LABEL}={}", serde_json::to_string(label)?),
    ])
    // Not --privileged: it asks for CAP_SYS_RESOURCE, which a host that is itself confined may lack.
    .args([
        "--cap-add=ALL",
        "--cap-drop=SYS_RESOURCE",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
    ])
    .args(["--device", "/dev/net/tun", "--volume"])
    .arg(format!("{}:/lab:ro", stage.display()));
    if host == label.options.controller() {
        run = run.args(["--network-alias", "ctl"]);
    }
    if Path::new(CGROUP_ROOT).join("cgroup.controllers").exists() {
        run = run.args(["--cgroupns=private"]);
    } else {
        run = run.arg(format!("--volume={CGROUP_ROOT}:{CGROUP_ROOT}:rw"));
    }
    for (volume, target) in VOLUMES {
        run = run.arg(format!("--volume={NAME}-{volume}:{target}"));
    }
    for (name, path) in &parts.guests {
        run = run.arg(format!(
            "--volume={}:/srv/muster/guests/{name}.qcow2:ro",
            path.display()
        ));
    }
    run.args([&parts.image, "sleep", "infinity"])
        .deadline(QUICK)
        .run()
        .map(drop)
}

/// Makes etcd's certificates, with the openssl of the lab's image.
fn certificates(image: &str, stage: &Path) -> Result<()> {
    let pki = stage.join("root/etc/muster/pki");
    fs::create_dir_all(&pki).with_context(|| format!("make {}", pki.display()))?;
    let volume = format!("{}:/stage", stage.display());
    docker([
        "run",
        "--rm",
        "--volume",
        &volume,
        image,
        "/stage/pki.sh",
        "/stage/root/etc/muster/pki",
    ])
    .deadline(QUICK)
    .run()
    .map(drop)
}

fn start_muster(lab: &Lab, parts: &Parts, progress: &Progress) -> Result<()> {
    if lab.options.state == State::Etcd {
        progress.say("starting etcd on ctl");
        lab.start_etcd()?;
        lab.protect_etcd()?;
    }
    for host in lab.options.hosts() {
        progress.say(format_args!("starting vmd on {host}"));
        lab.start_vmd(&host)?;
    }
    if lab.options.state == State::Etcd {
        let nodes = lab.options.node_names();
        wait_for(
            "vmd of every node to announce itself in etcd",
            Duration::from_secs(30),
            || {
                let keys = lab.etcdctl("get --prefix --keys-only /muster/v1/nodes/")?;
                let announced = |node: &String| keys.contains(&format!("/nodes/{node}/alive"));
                Ok(if nodes.iter().all(announced) {
                    Look::Ready(())
                } else {
                    Look::NotYet(format!("keys: {keys}"))
                })
            },
        )?;
    }
    for (name, _) in &parts.guests {
        progress.say(format_args!("importing the image {name}"));
        let source = format!("/srv/muster/guests/{name}.qcow2");
        let argv = ["muster", "image", "import", &source, &format!("lab:{name}")];
        let output = lab.run("ctl", User::Root, &argv, Duration::from_secs(300))?;
        if !output.ok() {
            bail!("{}: {output}", argv.join(" "));
        }
    }
    Ok(())
}

fn start_slurm(lab: &Lab, progress: &Progress) -> Result<()> {
    progress.say("starting slurmctld on ctl");
    lab.root("ctl", "slurmctld")?;
    wait_for(
        "slurmctld to answer `scontrol ping`",
        Duration::from_secs(30),
        || {
            let answer = lab
                .sh("ctl", User::Root, "scontrol ping", QUICK)?
                .to_string();
            Ok(if answer.contains("UP") {
                Look::Ready(())
            } else {
                Look::NotYet(answer)
            })
        },
    )?;
    let nodes = lab.options.node_names();
    for node in &nodes {
        progress.say(format_args!("starting slurmd on {node}"));
        lab.root(node, "slurmd")?;
    }
    wait_for(
        "all nodes to be idle in sinfo",
        Duration::from_secs(60),
        || {
            let list = lab.root(
                "ctl",
                "sinfo --noheader --Node --partition=main --format='%N %t'",
            )?;
            let idle = list
                .lines()
                .filter(|line| line.split_whitespace().nth(1) == Some("idle"))
                .count();
            Ok(if idle == nodes.len() {
                Look::Ready(())
            } else {
                Look::NotYet(list)
            })
        },
    )
}

pub(super) fn down(cache: &Cache, progress: &Progress) -> Result<bool> {
    let found = find()?.is_some();
    if found {
        progress.stage("taking the lab down", || remove(cache))?;
    } else {
        remove(cache)?;
    }
    Ok(found)
}

/// Removes all that carries the lab's label, the control groups of its nodes, and what was to be installed.
fn remove(cache: &Cache) -> Result<()> {
    let filter = format!("label={LABEL}");
    let removals: [(&[&str], &[&str]); 3] = [
        (&["ps", "-a", "-q"], &["rm", "--force", "--volumes"]),
        (&["network", "ls", "-q"], &["network", "rm"]),
        (&["volume", "ls", "-q"], &["volume", "rm"]),
    ];
    for (list, remove) in removals {
        let names = docker(list)
            .args(["--filter", &filter])
            .deadline(QUICK)
            .run()?
            .stdout;
        if !names.trim().is_empty() {
            docker(remove)
                .args(names.split_whitespace())
                .deadline(Duration::from_secs(120))
                .run()?;
        }
    }
    remove_cgroups(Path::new(CGROUP_ROOT))?;
    let stage = stage_directory(cache);
    match fs::remove_dir_all(&stage) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", stage.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the trees that slurmd leaves in a v1 hierarchy: `<controller>/slurm_node1` or `<controller>/slurm/...` by release.
fn remove_cgroups(root: &Path) -> Result<()> {
    if root.join("cgroup.controllers").exists() {
        // v2: each host had a name space of its own, which went with its container.
        return Ok(());
    }
    for controller in fs::read_dir(root).with_context(|| format!("list {}", root.display()))? {
        let Ok(groups) = fs::read_dir(controller?.path()) else {
            continue;
        };
        for group in groups {
            let group = group?.path();
            let name = group
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let ours = name
                .strip_prefix("slurm_node")
                .is_some_and(|number| number.parse::<u32>().is_ok());
            if ours && group.is_dir() {
                remove_group(&group)?;
            }
        }
    }
    Ok(())
}

/// Removes a control group and those below it. Only directories can be removed; the files in them go with them.
fn remove_group(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group).with_context(|| format!("list {}", group.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| {
        let group = group.display();
        format!("remove the control group {group}; does a slurmd of that node's name run outside of this lab?")
    })
}
