package sim

import (
	"context"
	"testing"
)

// TestSmallDomain plays seeds with a domain that is small enough to be seen
// through, so that a failure tells the network's faults from the folds'.
func TestSmallDomain(t *testing.T) {
	losers := 0
	for seed := range uint64(20) {
		res, err := Run(context.Background(), Config{Seed: 1000 + seed, Domain: Small()})
		if err != nil {
			t.Errorf("seed %d: %v", res.Seed, err)
		}
		losers += res.Losers
	}
	if losers == 0 {
		t.Error("no claim lost: the races do not race")
	}
}
