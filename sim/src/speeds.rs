//! Machines that are faster and slower by chance, and stay so for a while.

/// How fast each machine is beside its usual speed: an Ornstein-Uhlenbeck process.
#[derive(Debug)]
pub struct Speeds {
    moods: Vec<f64>,
    spread: f64,
    lasts: f64,
    random: fastrand::Rng,
}

/// No machine is slower, or faster, than its usual speed times this.
const BOUNDS: (f64, f64) = (0.2, 2.0);

impl Speeds {
    /// Of so many machines: with a standard deviation of `spread`, kept for about `lasts` seconds.
    pub fn new(count: usize, spread: f64, lasts: f64, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self { moods: (0..count).map(|_| normal(&mut random)).collect(), spread, lasts, random }
    }

    /// Time has passed.
    pub fn advance(&mut self, seconds: f64) {
        let keep = (-seconds / self.lasts).exp();
        for mood in &mut self.moods {
            *mood = keep * *mood + (1.0 - keep * keep).sqrt() * normal(&mut self.random);
        }
    }

    /// The speed of a machine beside its usual one.
    pub fn of(&self, machine: usize) -> f64 {
        (1.0 + self.spread * self.moods[machine]).clamp(BOUNDS.0, BOUNDS.1)
    }
}

/// Normal enough, with variance 1: the sum of twelve uniform numbers.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_stay_as_they_are_for_a_while() {
        let mut speeds = Speeds::new(2000, 0.2, 10.0, 1);
        let all = |speeds: &Speeds| (0..2000).map(|machine| speeds.of(machine) - 1.0).collect::<Vec<f64>>();
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / 2000.0 / 0.04;
        let before = all(&speeds);
        assert!((product(&before, &before) - 1.0).abs() < 0.1);
        speeds.advance(10.0);
        let after = all(&speeds);
        assert!((product(&before, &after) - 0.37).abs() < 0.08 && (product(&after, &after) - 1.0).abs() < 0.1);
        assert!((0..2000).all(|machine| Speeds::new(1, 0.0, 1.0, machine).of(0) == 1.0));
    }
}
