package query

import (
	"slices"

	"tallystick/query/artifact"
	"tallystick/query/carried"
	"tallystick/query/checkpoint"
	"tallystick/query/claim"
	"tallystick/query/mailbox"
	"tallystick/query/memory"
	"tallystick/query/minted"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// Carried says of every domain how its entries are carried into another log.
func Carried() []carried.Kind {
	return slices.Concat(mailbox.Carried(), claim.Carried(), minted.Carried(), summary.Carried(), memory.Carried(), rawmemory.Carried(),
		checkpoint.Carried(), artifact.Carried())
}
