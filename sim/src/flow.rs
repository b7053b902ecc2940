//! Bytes on their way through links, processors and disks, each of which is shared fairly: a flow
//! is as fast as the smallest of its shares. Time goes on from one end of a flow to the next.

/// A disk, a direction of a link, or the processors of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Bytes a second.
    pub speed: f64,
    /// By which part of it each further flow slows all: seeks.
    pub seek: f64,
    /// Flows that use it now.
    flows: u32,
    /// What a flow gets of it now.
    share: f64,
}

/// Bytes on their way.
#[derive(Clone, Copy, Debug)]
struct Flow {
    owner: u32,
    left: f64,
    uses: [u32; USES],
}

/// The most resources that a flow uses.
pub const USES: usize = 4;
/// In place of a resource.
pub const NOTHING: u32 = u32::MAX;
/// Flows that end so close to the next one end with it.
const TOGETHER: f64 = 1.01;

/// All resources and flows.
#[derive(Debug, Default)]
pub struct Network {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    /// Bytes that each resource moved so far.
    pub moved: Vec<f64>,
    /// Of each, the flows that used it, by seconds.
    pub waited: Vec<f64>,
}

impl Network {
    /// One more resource. Returns its number.
    pub fn add(&mut self, speed: f64, seek: f64) -> u32 {
        self.resources.push(Resource { speed, seek, flows: 0, share: 0.0 });
        self.moved.push(0.0);
        self.waited.push(0.0);
        self.resources.len() as u32 - 1
    }

    /// A resource has another speed now.
    pub fn set_speed(&mut self, resource: u32, speed: f64) {
        self.resources[resource as usize].speed = speed;
    }

    /// Somebody sends bytes through resources.
    pub fn send(&mut self, owner: u32, bytes: f64, uses: [u32; USES]) {
        uses.iter().filter(|used| **used != NOTHING).for_each(|used| self.resources[*used as usize].flows += 1);
        self.flows.push(Flow { owner, left: bytes, uses });
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty()
    }

    /// Goes on until a flow ends, for `most` seconds at most and, where a flow ends, `least` at
    /// least. Tells the owners of those that ended, and returns the seconds that passed.
    pub fn advance(&mut self, least: f64, most: f64, mut ended: impl FnMut(u32)) -> f64 {
        for resource in &mut self.resources {
            let flows = f64::from(resource.flows);
            resource.share = resource.speed / (1.0 + resource.seek * (flows - 1.0).max(0.0)) / flows.max(1.0);
        }
        let rate = |flow: &Flow| {
            let used = flow.uses.iter().filter(|used| **used != NOTHING);
            used.map(|used| self.resources[*used as usize].share).fold(f64::INFINITY, f64::min).max(1e-3)
        };
        let rates: Vec<f64> = self.flows.iter().map(rate).collect();
        let next = self.flows.iter().zip(&rates).map(|(flow, rate)| flow.left / rate).fold(f64::INFINITY, f64::min);
        let seconds = next.max(least).min(most);
        for (waited, resource) in self.waited.iter_mut().zip(&self.resources) {
            *waited += f64::from(resource.flows) * seconds;
        }
        let mut rates = rates.into_iter();
        let (resources, moved) = (&mut self.resources, &mut self.moved);
        self.flows.retain_mut(|flow| {
            let bytes = rates.next().expect("one for each") * seconds;
            let ends = flow.left <= bytes * TOGETHER;
            let bytes = if ends { flow.left } else { bytes };
            flow.left -= bytes;
            for used in flow.uses.iter().filter(|used| **used != NOTHING) {
                moved[*used as usize] += bytes;
                resources[*used as usize].flows -= u32::from(ends);
            }
            if ends {
                ended(flow.owner);
            }
            !ends
        });
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_what_they_use() {
        let mut network = Network::default();
        let (link, fast, slow) = (network.add(100.0, 0.0), network.add(100.0, 0.0), network.add(10.0, 0.0));
        network.send(1, 100.0, [link, fast, NOTHING, NOTHING]);
        network.send(2, 100.0, [link, slow, NOTHING, NOTHING]);
        let mut ended = Vec::new();
        // Half of the link, and all of the slow disk.
        assert_eq!(network.advance(0.0, 9.0, |owner| ended.push(owner)), 2.0);
        assert_eq!(network.moved, [120.0, 100.0, 20.0]);
        assert_eq!(network.advance(0.0, 3.0, |owner| ended.push(owner)), 3.0);
        assert_eq!(network.advance(0.0, 9.0, |owner| ended.push(owner)), 5.0);
        assert_eq!((ended, network.is_idle(), network.waited[2]), (vec![1, 2], true, 10.0));
    }

    #[test]
    fn seeks_cost_and_ends_close_together_are_one() {
        let mut network = Network::default();
        let disk = network.add(110.0, 0.1);
        network.send(1, 100.0, [disk, NOTHING, NOTHING, NOTHING]);
        network.send(2, 100.5, [disk, NOTHING, NOTHING, NOTHING]);
        let mut ended = Vec::new();
        let seconds = network.advance(0.0, 9.0, |owner| ended.push(owner));
        assert!((seconds - 2.0).abs() < 1e-9 && ended == [1, 2], "{seconds} {ended:?}");
        network.send(3, 1.0, [disk, NOTHING, NOTHING, NOTHING]);
        assert_eq!(network.advance(0.25, 9.0, |_| ()), 0.25);
    }
}
