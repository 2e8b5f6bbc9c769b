//! Clusters beside each other on one control plane: as many repeats are measured at a time.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use leasehold_lab::{Cluster, Lab};

use super::fault::Shape;
use super::ground::{Ground, System};
use super::phases;

pub(crate) struct Field {
    pub(crate) lab: Arc<Lab>,
    pub(crate) grounds: Vec<Ground>,
}

impl Field {
    /// Makes so many clusters of this shape with each system.
    pub(crate) async fn open(shape: Shape, systems: &[System], lanes: usize) -> Result<Self> {
        let lab = Lab::start().await?;
        if systems.iter().any(|system| matches!(system, System::Leasehold(_))) {
            lab.start_operator(&[])?;
        }
        let all = systems.iter().flat_map(|system| std::iter::repeat_n(*system, lanes));
        let grounds = all.zip(1..).map(async |(system, lane)| {
            let name = format!("bench-{lane}");
            let prepare = |cluster: &Cluster| {
                cluster.nodes().iter().try_for_each(|node| {
                    let arguments = phases::ARGUMENTS.map(str::to_owned).to_vec();
                    node.speaker()?.reconfigure(|options| options.arguments = arguments);
                    Ok(())
                })
            };
            Ground::open(&lab, &name, shape, system, prepare).await
        });
        let grounds = try_join_all(grounds).await?;
        Ok(Self { lab, grounds })
    }

    /// Whether it has so many clusters, all of this shape.
    pub(crate) fn is(&self, shape: Shape, clusters: usize) -> bool {
        self.grounds.len() == clusters && self.grounds.iter().all(|ground| ground.shape == shape)
    }

    /// Waits until all is well everywhere, and has the services spread evenly; whether they are then.
    pub(crate) async fn settle(&self) -> Result<bool> {
        let settled = self.grounds.iter().map(async |ground| {
            ground.settle().await?;
            // Whoever died got nothing back; whoever was up first may have taken all.
            if ground.is_even().await? {
                return Ok(true);
            }
            ground.even_out().await?;
            ground.settle().await?;
            ground.is_even().await
        });
        Ok(try_join_all(settled).await?.into_iter().all(|even| even))
    }
}
