//! Where the service stands in its life. Each replica's scheduler actor writes its own phase; the service's follows
//! from them, and is read by everybody.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// What a client is told whose stream was cut, or who came too late, because the service is ending.
pub const SHUTTING_DOWN: &str = "the service is shutting down";

/// What a client is told whose answer no engine will finish.
pub const ENGINE_LOST: &str = "the engine is lost";

/// What a client is told whose deadline passed before its answer was whole.
pub const DEADLINE_PASSED: &str = "the deadline of this request has passed";

/// One way only: `Starting`, `Ready`, `Draining`, `Drained`; `Lost` from any but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The engine is there, the warm-up is not over.
    Starting,
    /// A request would be answered.
    Ready,
    /// Nothing new is taken; what runs may finish.
    Draining,
    /// Nothing runs any more.
    Drained,
    /// The engine died, and why. The process ends with an error.
    Lost(String),
}

impl Phase {
    /// The service is past this one already.
    fn rank(&self) -> u8 {
        match self {
            Phase::Starting => 0,
            Phase::Ready => 1,
            Phase::Draining => 2,
            Phase::Lost(_) => 3,
            Phase::Drained => 4,
        }
    }

    /// Goes to `next` unless that would go back. True if it went.
    pub fn advance(&mut self, next: Phase) -> bool {
        let forward = next.rank() > self.rank() && !matches!(self, Phase::Lost(_));
        if forward {
            *self = next;
        }
        forward
    }
}

/// The phases of all replicas, and the phase of the service that they make together. Clones are one.
#[derive(Clone, Debug)]
pub struct Phases(Arc<AllPhases>);

#[derive(Debug)]
struct AllPhases {
    each: Mutex<Vec<Phase>>,
    service: watch::Sender<Phase>,
}

impl Phases {
    /// So many replicas that start, and the phase of the service to look at and to wait for.
    pub fn starting(replicas: usize) -> (Self, watch::Receiver<Phase>) {
        let (service, seen) = watch::channel(Phase::Starting);
        (Self(Arc::new(AllPhases { each: Mutex::new(vec![Phase::Starting; replicas]), service })), seen)
    }

    /// The phase of the replica of this number, for whoever moves it on.
    pub fn of(&self, number: usize) -> ReplicaPhase {
        ReplicaPhase { all: self.clone(), number }
    }

    /// Numbers of the replicas that are lost.
    pub fn lost(&self) -> Vec<usize> {
        let each = self.0.each.lock();
        (0..each.len()).filter(|number| matches!(each[*number], Phase::Lost(_))).collect()
    }
}

/// The phase of one replica. Clones are one.
#[derive(Clone, Debug)]
pub struct ReplicaPhase {
    all: Phases,
    number: usize,
}

impl ReplicaPhase {
    /// The phase of a service's only replica, and that of the service.
    pub fn alone() -> (Self, watch::Receiver<Phase>) {
        let (all, seen) = Phases::starting(1);
        (all.of(0), seen)
    }

    /// The number of the replica, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Where the replica stands.
    pub fn now(&self) -> Phase {
        self.all.0.each.lock()[self.number].clone()
    }

    /// True if the replica drains.
    pub fn is_draining(&self) -> bool {
        self.all.0.each.lock()[self.number] == Phase::Draining
    }

    /// True if the replica's engine is lost.
    pub fn is_lost(&self) -> bool {
        matches!(self.all.0.each.lock()[self.number], Phase::Lost(_))
    }

    /// True if no replica is left.
    pub fn service_is_lost(&self) -> bool {
        matches!(*self.all.0.service.borrow(), Phase::Lost(_))
    }

    /// Goes to `next` unless that would go back, and takes the service along. True if it went.
    pub fn advance(&self, next: Phase) -> bool {
        let mut each = self.all.0.each.lock();
        let went = each[self.number].advance(next);
        if went {
            let together = together(&each).unwrap_or_else(|| each[self.number].clone());
            // While the others wait for the lock, so that the service never hears of an older state last.
            self.all.0.service.send_if_modified(|phase| phase.advance(together));
        }
        went
    }
}

/// The phase of a service by those of its replicas that live; `None` if all are lost.
fn together(each: &[Phase]) -> Option<Phase> {
    let living = || each.iter().filter(|phase| !matches!(phase, Phase::Lost(_)));
    living().next()?;
    Some(if living().any(|phase| *phase == Phase::Starting) {
        Phase::Starting
    } else if living().all(|phase| *phase == Phase::Ready) {
        Phase::Ready
    } else if living().all(|phase| *phase == Phase::Drained) {
        Phase::Drained
    } else {
        Phase::Draining
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_ready_when_all_are_and_lost_when_none_is_left() {
        let (all, service) = Phases::starting(2);
        let replicas = [all.of(0), all.of(1)];
        assert!(replicas[0].advance(Phase::Ready));
        assert_eq!(*service.borrow(), Phase::Starting);
        assert!(replicas[1].advance(Phase::Ready));
        assert_eq!(*service.borrow(), Phase::Ready);
        assert!(replicas[1].advance(Phase::Lost("a trap".into())) && replicas[1].is_lost());
        assert_eq!((service.borrow().clone(), all.lost()), (Phase::Ready, vec![1]));
        assert!(!replicas[0].service_is_lost());
        assert!(replicas[0].advance(Phase::Draining) && replicas[0].is_draining());
        assert_eq!(*service.borrow(), Phase::Draining);
        assert!(replicas[0].advance(Phase::Lost("another".into())));
        assert!(matches!(&*service.borrow(), Phase::Lost(why) if why == "another"), "{:?}", service.borrow());
        assert!(replicas[0].service_is_lost());
    }

    #[test]
    fn a_service_has_drained_when_all_that_live_have() {
        let (all, service) = Phases::starting(3);
        let replicas: Vec<_> = (0..3).map(|number| all.of(number)).collect();
        replicas.iter().for_each(|replica| assert!(replica.advance(Phase::Ready)));
        replicas[0].advance(Phase::Lost("gone".into()));
        replicas[1].advance(Phase::Draining);
        replicas[1].advance(Phase::Drained);
        assert_eq!(*service.borrow(), Phase::Draining);
        replicas[2].advance(Phase::Drained);
        assert_eq!(*service.borrow(), Phase::Drained);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let mut phase = Phase::Starting;
        assert!(phase.advance(Phase::Draining));
        assert!(!phase.advance(Phase::Ready));
        assert!(phase.advance(Phase::Lost("why".into())));
        assert!(!phase.advance(Phase::Draining));
        assert_eq!(phase, Phase::Lost("why".into()));
        phase = Phase::Drained;
        assert!(!phase.advance(Phase::Lost("stopped on purpose".into())));
    }
}
