//! Which cluster a command is for: `-j`, else the job it runs in, else the only one there is.

use muster_types::ids::JobId;
use muster_types::state::ClusterView;

use crate::context::Context;
use crate::exit::{NoSuch, Usage};
use crate::vmd::Vmd;

/// The option of all commands that act on a cluster.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Target {
    /// Job of the cluster [default: this shell's or script's job, else your only running cluster]
    #[arg(short, long = "jobid", value_name = "JOB")]
    pub(crate) job: Option<JobId>,
}

impl Target {
    /// The job that is named by `-j` or the environment.
    pub(crate) fn named(&self, context: &Context) -> anyhow::Result<Option<JobId>> {
        match (self.job, &context.slurm_job) {
            (Some(job), _) => Ok(Some(job)),
            (None, Some(text)) => {
                let job = text.parse::<JobId>();
                job.map(Some)
                    .map_err(|e| Usage(format!("SLURM_JOB_ID: {e}")).into())
            }
            (None, None) => Ok(None),
        }
    }

    /// The cluster.
    pub(crate) fn cluster(&self, context: &Context, vmd: &Vmd) -> anyhow::Result<ClusterView> {
        match self.named(context)? {
            Some(job) => vmd.cluster(job),
            None => choose(vmd.clusters(Some(context.uid))?),
        }
    }

    /// The cluster's job, without a look at a cluster that is named.
    pub(crate) fn job(&self, context: &Context, vmd: &Vmd) -> anyhow::Result<JobId> {
        match self.named(context)? {
            Some(job) => Ok(job),
            None => Ok(choose(vmd.clusters(Some(context.uid))?)?.key.job),
        }
    }
}

/// The only cluster that is not over, or the only one at all.
fn choose(mut clusters: Vec<ClusterView>) -> anyhow::Result<ClusterView> {
    if clusters.iter().any(|c| !c.state.is_over()) {
        clusters.retain(|c| !c.state.is_over());
    }
    match clusters.len() {
        0 => Err(NoSuch(
            "you have no virtual cluster; start one with salloc --vm=TEMPLATE:COUNT, or name one with -j JOB"
                .to_owned(),
        )
        .into()),
        1 => Ok(clusters.swap_remove(0)),
        n => {
            let lines = clusters.iter().take(20).map(|c| {
                format!("\n  -j {}  {}  {}", c.key.job, c.definition, c.state)
            });
            let more = if n > 20 { "\n  ..." } else { "" };
            Err(Usage(format!(
                "you have {n} virtual clusters, choose one:{}{more}",
                lines.collect::<String>()
            ))
            .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::cluster;
    use muster_types::state::ClusterState;

    fn of(states: &[(u32, ClusterState)]) -> Result<u32, String> {
        let clusters = states.iter().map(|&(job, state)| ClusterView {
            state,
            key: muster_types::ids::JobKey {
                job: JobId(job),
                restart: 0,
            },
            ..cluster()
        });
        choose(clusters.collect())
            .map(|c| c.key.job.0)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_only_running_one_is_meant() {
        use ClusterState::{Failed, Running, Starting, Stopped};
        assert_eq!(of(&[(1, Stopped), (2, Running), (3, Failed)]), Ok(2));
        assert_eq!(of(&[(5, Failed)]), Ok(5));
        assert!(of(&[]).unwrap_err().contains("no virtual cluster"));
        let several = of(&[(1, Running), (2, Starting), (3, Failed)]).unwrap_err();
        assert!(several.contains("2 virtual clusters"), "{several}");
        assert!(several.contains("-j 1") && several.contains("-j 2"));
        assert!(!several.contains("-j 3"));
    }
}
