package memory

import (
	"math"

	"tallystick/query/refusal"
)

// ConfidencePolicy names the rules by which confidence is written and ranked.
const ConfidencePolicy = "confidence-v1"

// Labels of confidence, exact in case and without padding. A fact without a
// label ranks as inferred; a label of some other program ranks as unverified
// and keeps its text.
const (
	Verified   = "verified"
	Inferred   = "inferred"
	Unverified = "unverified"
)

// Confidences lists the labels, highest first.
func Confidences() []string { return []string{Verified, Inferred, Unverified} }

// MaxConfidenceWeight is the most that confidence may weigh in ranking.
const MaxConfidenceWeight = 0.5

// CheckConfidence checks a label of a caller; absent is given false.
func CheckConfidence(field, label string, given bool) error {
	if !given || label == Verified || label == Inferred || label == Unverified {
		return nil
	}
	return refusal.OneOf(field, label, Confidences())
}

// Level is the rank of a stored label: 2, 1 or 0.
func Level(label string) int {
	switch label {
	case Verified:
		return 2
	case "", Inferred:
		return 1
	}
	return 0
}

// Passes reports whether a stored label is at least the wanted one. It
// belongs before ranking and counting, so that what it hides influences
// nothing. An empty wish lets everything pass.
func Passes(label, wanted string) bool {
	return wanted == "" || Level(label) >= Level(wanted)
}

// CheckWeight checks a confidence weight of a caller.
func CheckWeight(field string, weight float64) error {
	if math.IsNaN(weight) || weight < 0 || weight > MaxConfidenceWeight {
		return refusal.Invalid(field, "use a number from 0 to 0.5", "%s is %v", field, weight)
	}
	return nil
}

// Weigh is a fused score with confidence in it.
func Weigh(fused, weight float64, label string) float64 {
	return fused * (1 + weight*float64(Level(label)-1))
}
