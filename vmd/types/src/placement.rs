//! Which VM runs on which node: a pure function of the job's nodes, their CPUs and the request, so
//! that every node of a job computes the same without a message.
//!
//! VMs keep rank order over the nodes (block distribution) and spread in proportion to the nodes'
//! CPUs. A VM of a template without `cpus` gets the largest equal share with which all VMs fit.

use serde::{Deserialize, Serialize};

use crate::ids::Rank;
use crate::request::{ClusterRequest, MAX_VCPUS};

/// Where one VM runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Placement {
    /// Which VM.
    pub rank: Rank,
    /// Index of its node in the job's node list.
    pub node: usize,
    /// Its vCPUs.
    pub vcpus: u32,
}

/// Why the VMs do not fit the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// One VM is larger than every node's share of the job.
    #[error(
        "template '{template}' asks for {cpus} CPUs per VM, but the job has at most {most} on a node: ask Slurm for more (-c, -n) or set 'cpus' lower"
    )]
    TooLarge {
        /// The template.
        template: String,
        /// Its `cpus`.
        cpus: u32,
        /// CPUs of the job's largest node.
        most: u32,
    },
    /// All VMs together need more CPUs than there are.
    #[error(
        "{vms} VMs need {needed} CPUs in pieces that fit the nodes, but the job has {have} ({per_node}): ask Slurm for more tasks or CPUs (-n, -c) or fewer VMs"
    )]
    Full {
        /// Number of VMs.
        vms: usize,
        /// CPUs they need at the least.
        needed: u64,
        /// CPUs of the job.
        have: u64,
        /// The job's CPUs per node, `4+4+2`.
        per_node: String,
    },
}

/// Places the VMs of a request on nodes with the given CPUs.
///
/// # Errors
/// They do not fit; see [`PlacementError`].
pub fn place(cpus: &[u32], request: &ClusterRequest) -> Result<Vec<Placement>, PlacementError> {
    let most = cpus.iter().copied().max().unwrap_or(0);
    let vms: Vec<Option<u32>> = request.vms().map(|(_, t)| t.cpus).collect();
    if let Some((template, asked)) = request
        .vms()
        .find_map(|(name, t)| Some((name, t.cpus.filter(|&c| c > most)?)))
    {
        return Err(PlacementError::TooLarge {
            template: template.to_owned(),
            cpus: asked,
            most,
        });
    }
    let have: u64 = cpus.iter().map(|&c| u64::from(c)).sum();
    let fixed: u64 = vms.iter().flatten().map(|&c| u64::from(c)).sum();
    let open = vms.iter().filter(|v| v.is_none()).count() as u64;
    let share = match open {
        0 => 1,
        n => (have.saturating_sub(fixed) / n).min(u64::from(most.min(MAX_VCPUS))),
    };
    // The share falls until the pieces fit: uneven nodes or fixed sizes can leave gaps.
    for share in (1..=u32::try_from(share).unwrap_or(MAX_VCPUS)).rev() {
        let sizes: Vec<u32> = vms.iter().map(|v| v.unwrap_or(share)).collect();
        if let Some(nodes) = fill(cpus, &sizes, true).or_else(|| fill(cpus, &sizes, false)) {
            return Ok((0..)
                .zip(nodes.iter().zip(&sizes))
                .map(|(rank, (&node, &vcpus))| Placement {
                    rank: Rank(rank),
                    node,
                    vcpus,
                })
                .collect());
        }
    }
    Err(PlacementError::Full {
        vms: vms.len(),
        needed: fixed + open,
        have,
        per_node: cpus
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("+"),
    })
}

/// Fills the nodes in order; `even` stops at each node's proportional part of all VMs. `None`: a VM
/// is left over.
fn fill(cpus: &[u32], sizes: &[u32], even: bool) -> Option<Vec<usize>> {
    let total_cpus: u64 = cpus.iter().map(|&c| u64::from(c)).sum();
    let total: u64 = sizes.iter().map(|&s| u64::from(s)).sum();
    let mut nodes = Vec::with_capacity(sizes.len());
    let (mut placed, mut cpus_so_far) = (0_u64, 0_u64);
    for (node, &capacity) in cpus.iter().enumerate() {
        cpus_so_far += u64::from(capacity);
        let mut free = capacity;
        while let Some(&size) = sizes.get(nodes.len()) {
            // A VM belongs to this node while less than the node's part has been given out before it.
            let due = !even || placed * total_cpus < cpus_so_far * total;
            if size > free || !due {
                break;
            }
            free -= size;
            placed += u64::from(size);
            nodes.push(node);
        }
    }
    (nodes.len() == sizes.len()).then_some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageRef;
    use crate::request::{REQUEST_VERSION, Submitter, TemplateSpec, VmGroup};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn request(groups: &[(u32, Option<u32>)]) -> ClusterRequest {
        let image = ImageRef::File { path: "/i".into() };
        ClusterRequest {
            version: REQUEST_VERSION,
            definition: String::new(),
            submitter: Submitter::Salloc,
            groups: (0..)
                .zip(groups)
                .map(|(i, g): (u32, _)| VmGroup {
                    template: format!("t{i}"),
                    count: g.0,
                })
                .collect(),
            templates: (0..)
                .zip(groups)
                .map(|(i, g): (u32, _)| {
                    (
                        format!("t{i}"),
                        TemplateSpec {
                            image: Some(image.clone()),
                            cpus: g.1,
                            ..TemplateSpec::default()
                        },
                    )
                })
                .collect(),
            resource_sets: BTreeMap::new(),
            networks: BTreeMap::new(),
        }
    }

    fn placed(cpus: &[u32], groups: &[(u32, Option<u32>)]) -> Vec<(usize, u32)> {
        place(cpus, &request(groups))
            .unwrap()
            .iter()
            .map(|p| (p.node, p.vcpus))
            .collect()
    }

    #[test]
    fn equal_shares_spread_over_the_nodes() {
        assert_eq!(placed(&[1, 1], &[(2, None)]), [(0, 1), (1, 1)]);
        assert_eq!(
            placed(&[4, 4], &[(4, None)]),
            [(0, 2), (0, 2), (1, 2), (1, 2)]
        );
        assert_eq!(placed(&[4], &[(3, None)]), [(0, 1), (0, 1), (0, 1)]);
        assert_eq!(placed(&[4, 4], &[(1, None)]), [(0, 4)]);
        assert_eq!(placed(&[4, 2], &[(3, None)]), [(0, 2), (0, 2), (1, 2)]);
        assert_eq!(placed(&[3, 3], &[(3, None)]), [(0, 1), (0, 1), (1, 1)]);
    }

    #[test]
    fn few_vms_on_large_nodes_spread_too() {
        assert_eq!(
            placed(&[8, 8, 8], &[(3, Some(1))]),
            [(0, 1), (1, 1), (2, 1)]
        );
    }

    #[test]
    fn fixed_sizes_leave_the_rest_to_the_others() {
        assert_eq!(
            placed(&[4, 4], &[(1, Some(3)), (2, None)]),
            [(0, 3), (1, 2), (1, 2)]
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let e = place(&[2, 2], &request(&[(1, Some(3))]))
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("'t0' asks for 3") && e.contains("at most 2"),
            "{e}"
        );
        let e = place(&[1, 1], &request(&[(3, None)]))
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("3 VMs need 3 CPUs") && e.contains("the job has 2 (1+1)"),
            "{e}"
        );
        assert!(place(&[], &request(&[(1, None)])).is_err());
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_a_node_has(
            cpus in proptest::collection::vec(1_u32..9, 1..6),
            groups in proptest::collection::vec((1_u32..5, proptest::option::of(1_u32..5)), 1..4),
        ) {
            let request = request(&groups);
            if let Ok(placement) = place(&cpus, &request) {
                prop_assert_eq!(placement.len(), request.vm_count() as usize);
                let mut used = vec![0; cpus.len()];
                for (i, p) in placement.iter().enumerate() {
                    prop_assert_eq!(p.rank.0 as usize, i);
                    prop_assert!(p.vcpus >= 1);
                    used[p.node] += p.vcpus;
                }
                prop_assert!(used.iter().zip(&cpus).all(|(u, c)| u <= c));
                prop_assert!(placement.windows(2).all(|w| w[0].node <= w[1].node));
            } else {
                let needed: u32 = request.vms().map(|(_, t)| t.cpus.unwrap_or(1)).sum();
                let fits_alone = request.vms().all(|(_, t)| t.cpus.unwrap_or(1) == 1);
                prop_assert!(!(fits_alone && needed <= cpus.iter().sum()), "refused although it fits");
            }
        }
    }
}
