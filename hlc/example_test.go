package hlc_test

import (
	"errors"
	"fmt"
	"time"

	"tallystick/hlc"
)

func Example() {
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	clock := hlc.NewClock(hlc.Config{Wall: func() int64 { return wall }})
	origin := [6]byte{0x3f, 0x9a, 0x11, 0x00, 0xc4, 0x02}

	fmt.Println(hlc.Stamp{Timestamp: clock.Now(), Origin: origin})
	wall -= 5000 // the wall clock is set back
	fmt.Println(hlc.Stamp{Timestamp: clock.Now(), Origin: origin})

	// An entry arrives from a machine that is 8 s ahead.
	_ = clock.Merge(hlc.New(wall+8000, 7))
	fmt.Println(hlc.Stamp{Timestamp: clock.Now(), Origin: origin})

	// And one from a machine that is a year ahead.
	var ahead *hlc.AheadError
	err := clock.Merge(hlc.New(wall+365*24*3600*1000, 0))
	fmt.Println(errors.As(err, &ahead), err)
	// Output:
	// 1772366400000-0000-3f9a1100c402
	// 1772366400000-0001-3f9a1100c402
	// 1772366403000-0008-3f9a1100c402
	// true hlc: timestamp 2027-03-01T11:59:55Z is 8760h0m0s ahead of the local wall clock, more than the bound of 10m0s
}

func ExampleParseStamp() {
	s, err := hlc.ParseStamp("1772366400000-0001-3f9a1100c402")
	fmt.Println(s.Timestamp.Time(), s.Timestamp.Counter(), err)

	_, err = hlc.ParseStamp("1772366400000-0001-3F9A1100C402")
	fmt.Println(errors.Is(err, hlc.ErrFormat))
	// Output:
	// 2026-03-01 12:00:00 +0000 UTC 1 <nil>
	// true
}
