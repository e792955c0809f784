package claim_test

import (
	"testing"

	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
)

func TestK3_LeaseEndsAndIsRenewedByAnyAckOfTheHolder(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 0, alice, "claimed")
	m.wants(12*hour-1, alice, true)
	m.wants(12*hour, "", true)
	m.ack(1, 6*hour, alice, "ready")
	m.wants(17*hour, alice, true)
	m.ack(1, 7*hour, alice, "", lease(20*hour))
	m.wants(26*hour, alice, true)
	m.wants(27*hour, "", true)
}

// An ack that names no length renews by the length that was asked for last, in
// the task's one row and when it has many.
func TestK3_RenewsByTheLengthAskedFor(t *testing.T) {
	for _, many := range []int{0, 20} {
		m := newMesh(t)
		m.request(0, 0, owner, 0)
		for n := range many {
			m.ack(3, int64(1+n), carol, "blocked")
		}
		m.ack(1, minute, alice, "claimed", lease(30*minute))
		m.ack(1, 20*minute, alice, "ready")
		m.wants(50*minute-1, alice, true)
		m.wants(50*minute, "", true)
		m.ack(1, 40*minute, alice, "blocked", lease(2*hour))
		m.ack(1, 60*minute, alice, "")
		m.wants(3*hour-1, alice, true)
		m.wants(3*hour, "", true)
	}
}

// What a loser wrote to keep its claim, before it knew, is no loss of its own.
func TestK1_RenewalsOfALostClaimAreOneLoss(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(2, 20, bob, "claimed", lease(hour))
	m.ack(2, 50*minute, bob, "ready")
	m.ack(2, 100*minute, bob, "", lease(hour))
	m.ack(2, 150*minute, bob, "claimed", lease(12*hour))
	m.ack(1, 10, alice, "claimed", lease(day))
	if task := m.wants(4*hour, alice, true); len(task.Losses) != 1 {
		t.Fatalf("losses %+v", task.Losses)
	}
	m.ack(2, 16*hour, bob, "claimed") // the lease bob believed in is over
	if task := m.wants(17*hour, alice, true); len(task.Losses) != 2 {
		t.Fatalf("losses %+v", task.Losses)
	}
}

func TestK3_RenewalsAfterAnUnknownCloseAreNoLoss(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(2, 20, bob, "applied")
	m.ack(1, 30, alice, "", lease(hour))
	if task := m.wants(100, "", false); len(task.Losses) != 0 {
		t.Fatalf("losses %+v", task.Losses)
	}
}

func TestK3_RenewalNeverShortens(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 0, alice, "claimed", lease(10*hour))
	m.ack(1, hour, alice, "ready", lease(hour))
	m.wants(9*hour, alice, true)
}

func TestK3_LeaseIsNeverShorterThanTheClockBound(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 0, alice, "claimed", lease(1))
	m.wants(9*minute, alice, true)
}

func TestK3_RenewalAfterTheEndIsANewClaim(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 0, alice, "claimed", lease(hour))
	m.ack(1, 2*hour, alice, "ready", lease(hour))
	task := m.wants(2*hour+minute, alice, true)
	if task.Claim.Since != logstream.FormatTime(foldtest.At(2*hour).Time()) {
		t.Fatalf("since %s: not a new claim", task.Claim.Since)
	}
	m.ack(2, 90*minute, bob, "claimed") // arrives late, was stamped in the gap
	task = m.wants(2*hour+minute, bob, true)
	if len(task.Losses) != 1 || task.Losses[0].Loser != alice {
		t.Fatalf("K5: the renewal inside another's span is no loss: %+v", task.Losses)
	}
}

func TestK3_KeepingAfterTheEndIsNoClaim(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 0, alice, "claimed", lease(hour))
	m.ack(1, 2*hour, alice, "ready")
	m.wants(2*hour+1, "", true)
}

func TestK3_ExpiryIsJudgedByStamps(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, hour)
	m.ack(1, 30*minute, alice, "claimed")
	m.wants(hour-1, alice, true)
	m.wants(hour, "", false)
	m.ack(2, hour+1, bob, "claimed")
	task := m.wants(hour+2, "", false)
	if len(task.Losses) != 1 || task.Losses[0].Rule != "task_expired" {
		t.Fatalf("losses %+v", task.Losses)
	}
}
