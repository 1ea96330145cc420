//! What this node does for a job: computed whole from the job's facts, the user's request and the
//! node's settings, before anything on the host is touched.

use std::fmt;
use std::path::PathBuf;

use muster_types::api::{JobFacts, LaunchPlan, VmPlan};
use muster_types::hostlist::{self, ListError};
use muster_types::ids::NodeName;
use muster_types::placement::{self, Placement, PlacementError};
use muster_types::request::{self, ClusterRequest, RequestError};

use crate::policy::{Reasons, SiteView};
use crate::settings::Settings;

/// A node's part of a virtual cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// The job's nodes, in Slurm's order.
    pub nodes: Vec<NodeName>,
    /// Index of this node in them; node 0 leads the cluster.
    pub index: usize,
    /// What the user asked for.
    pub request: ClusterRequest,
    /// Where each VM runs.
    pub placement: Vec<Placement>,
    /// Directories to make for the user, in this order.
    pub directories: Vec<PathBuf>,
    /// What the shim is given.
    pub launch: LaunchPlan,
}

/// Why there is no plan; the text is the job's verdict.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The job has the option but no request.
    #[error(
        "the job came without its cluster request: was it submitted where spank_muster.so is not loaded?"
    )]
    NoRequest,
    /// The request was refused.
    #[error("cluster request refused: {0}")]
    Request(#[from] RequestError),
    /// The site does not allow it.
    #[error("refused by the site's policy: {0}")]
    Policy(Reasons),
    /// This node's networks or resource sets are not those of the submit host.
    #[error("{0}")]
    Differs(Reasons),
    /// Slurm's lists do not parse.
    #[error("job facts: {0}")]
    Lists(#[from] ListError),
    /// This node is not among the job's.
    #[error("node {node} is not in the job's node list '{list}'")]
    NotOurs {
        /// This node.
        node: NodeName,
        /// The job's list.
        list: String,
    },
    /// The VMs do not fit.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// Computes this node's plan. `site` is what this node's configuration says of the job; none for a job
/// that was judged by an earlier vmd.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(
    facts: &JobFacts,
    request: Option<&str>,
    site: Option<&SiteView>,
    settings: &Settings,
) -> Result<NodePlan, PlanError> {
    let nodes = hostlist::expand(&facts.nodelist)?;
    let cpus = hostlist::expand_cpus(&facts.cpus_per_node, nodes.len())?;
    let index = nodes.iter().position(|n| *n == facts.node);
    let index = index.ok_or_else(|| PlanError::NotOurs {
        node: facts.node.clone(),
        list: facts.nodelist.clone(),
    })?;
    let request = request::parse(request.ok_or(PlanError::NoRequest)?)?;
    request.check_supported()?;
    if let Some(site) = site {
        site.judge(facts, &request).map_err(PlanError::Policy)?;
        site.compare(facts, &request).map_err(PlanError::Differs)?;
    }
    let placement = placement::place(&cpus, &request)?;
    let vms = request
        .vms()
        .zip(&placement)
        .filter(|(_, place)| place.node == index)
        .map(|((template, spec), place)| VmPlan {
            rank: place.rank,
            template: template.to_owned(),
            spec: spec.clone(),
            vcpus: place.vcpus,
        })
        .collect();
    let scratch = settings.scratch_dir.join(facts.key.to_string());
    let run = settings.vm_dir().join(facts.key.job.to_string());
    let launch = LaunchPlan {
        key: facts.key,
        node: facts.node.clone(),
        scratch_dir: scratch.display().to_string(),
        run_dir: run.display().to_string(),
        vms,
        memory_overhead_mib: settings.memory_overhead_mib,
        memory_overhead_permille: settings.memory_overhead_permille,
        stop_timeout_ms: u64::try_from(settings.stop_timeout.as_millis()).unwrap_or(u64::MAX),
    };
    Ok(NodePlan {
        nodes,
        index,
        request,
        placement,
        directories: vec![scratch, run],
        launch,
    })
}

impl NodePlan {
    /// Whether this node leads the cluster: writes its record, starts its VM step, judges it.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.index == 0
    }
}

impl fmt::Display for NodePlan {
    /// The lines an admin would type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for dir in &self.directories {
            writeln!(f, "install -d -m 0700 -o <job's user> {}", dir.display())?;
        }
        if self.leads() {
            let job = self.launch.key.job;
            let step = muster_types::step::arguments(job, self.nodes.len(), "vmd-shim");
            writeln!(f, "srun {}", step.join(" "))?;
        }
        for vm in &self.launch.vms {
            let image = vm.spec.image.as_ref();
            let image = image.map_or_else(|| "no image".to_owned(), ToString::to_string);
            writeln!(f, "# {}: {} vCPUs, {image}", vm.rank, vm.vcpus)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::journal::tests::facts;
    use crate::settings::tests::settings;
    use muster_types::image::ImageRef;
    use muster_types::request::{Accel, REQUEST_VERSION, Submitter, TemplateSpec, VmGroup};
    use std::collections::BTreeMap;

    pub(crate) fn request(count: u32) -> String {
        let image = ImageRef::File { path: "/i".into() };
        let spec = TemplateSpec {
            image: Some(image),
            accel: Accel::Tcg,
            ..TemplateSpec::default()
        };
        ClusterRequest {
            version: REQUEST_VERSION,
            definition: format!("tiny:{count}"),
            submitter: Submitter::Salloc,
            groups: vec![VmGroup {
                template: "tiny".into(),
                count,
            }],
            templates: BTreeMap::from([("tiny".into(), spec)]),
            resource_sets: BTreeMap::new(),
            networks: BTreeMap::new(),
        }
        .to_json()
        .unwrap()
    }

    #[test]
    fn each_node_plans_its_own_vms() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let on = |node: &str| {
            plan(
                &facts(7, "n[1-2]", node),
                Some(&request(2)),
                None,
                &settings,
            )
            .unwrap()
        };
        let (first, second) = (on("n1"), on("n2"));
        assert!(first.leads() && !second.leads());
        assert_eq!(first.placement, second.placement);
        assert_eq!(first.launch.vms.len(), 1);
        assert_eq!(second.launch.vms[0].rank.0, 1);
        let text = first.to_string();
        assert!(text.contains("srun --jobid=7 --overlap"), "{text}");
        assert!(text.contains("# vm0: 1 vCPUs, /i"), "{text}");
    }

    #[test]
    fn bad_facts_and_requests_become_words() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let say = |f: &JobFacts, r: Option<&str>| {
            let site = SiteView::default();
            plan(f, r, Some(&site), &settings).unwrap_err().to_string()
        };
        let good = facts(7, "n[1-2]", "n1");
        assert!(say(&good, None).contains("without its cluster request"));
        assert!(say(&good, Some("{")).contains("refused"));
        assert!(say(&good, Some(&request(3))).contains("3 VMs need 3 CPUs"));
        assert!(say(&facts(7, "n[1-2]", "n3"), Some(&request(1))).contains("n3"));
        assert!(say(&facts(7, "n[1-", "n1"), Some(&request(1))).contains("host list"));
    }
}
