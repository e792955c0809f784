package hlc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxMillis is the largest wall reading a Timestamp can carry: 48 bits of
// unix milliseconds. The text form allows 13 decimal digits, which is less,
// so the text form is the limit that binds (the year 2286).
const MaxMillis = 9_999_999_999_999

// ErrFormat is returned by ParseStamp for text that is not a stamp.
var ErrFormat = errors.New("hlc: malformed timestamp text")

// Timestamp is one reading of a hybrid logical clock: 48 bits of unix
// milliseconds above 16 bits of counter. Numeric order is clock order.
// The zero value means "no timestamp".
type Timestamp uint64

// New builds a Timestamp from unix milliseconds and a counter. Milliseconds
// outside 0..MaxMillis are brought to the nearest end.
func New(millis int64, counter uint16) Timestamp {
	if millis < 0 {
		millis = 0
	}
	if millis > MaxMillis {
		millis = MaxMillis
	}
	return Timestamp(uint64(millis)<<16 | uint64(counter))
}

// Millis is the wall part in unix milliseconds.
func (t Timestamp) Millis() int64 { return int64(t >> 16) }

// Counter is the logical part.
func (t Timestamp) Counter() uint16 { return uint16(t) }

// Time is the wall part as a time in UTC, to the millisecond.
func (t Timestamp) Time() time.Time { return time.UnixMilli(t.Millis()).UTC() }

// IsZero reports whether t carries no reading.
func (t Timestamp) IsZero() bool { return t == 0 }

// Compare orders by wall part, then counter: -1, 0 or +1.
func (t Timestamp) Compare(u Timestamp) int {
	switch {
	case t < u:
		return -1
	case t > u:
		return 1
	}
	return 0
}

// Next is the smallest timestamp above t; a full counter borrows the next
// millisecond (C1).
func (t Timestamp) Next() Timestamp { return t + 1 }

// Sub is the difference of the wall parts, t minus u.
func (t Timestamp) Sub(u Timestamp) time.Duration {
	return time.Duration(t.Millis()-u.Millis()) * time.Millisecond
}

// Stamp is a timestamp with the short id of the origin that issued it, which
// is what people and clients see.
type Stamp struct {
	Timestamp Timestamp
	Origin    [6]byte
}

// String is `<13 digit ms>-<4 hex>-<12 hex of the origin>`. It sorts as bytes
// in the order of Compare.
func (s Stamp) String() string {
	return fmt.Sprintf("%013d-%04x-%s", s.Timestamp.Millis(), s.Timestamp.Counter(), hex.EncodeToString(s.Origin[:]))
}

// IsZero reports whether the stamp carries no reading.
func (s Stamp) IsZero() bool { return s.Timestamp == 0 }

// Compare orders by timestamp, then by origin.
func (s Stamp) Compare(u Stamp) int {
	if c := s.Timestamp.Compare(u.Timestamp); c != 0 {
		return c
	}
	for i := range s.Origin {
		if s.Origin[i] != u.Origin[i] {
			if s.Origin[i] < u.Origin[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// MarshalText is String; an empty text for the zero stamp.
func (s Stamp) MarshalText() ([]byte, error) {
	if s.IsZero() {
		return nil, nil
	}
	return []byte(s.String()), nil
}

// UnmarshalText accepts what MarshalText gives.
func (s *Stamp) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = Stamp{}
		return nil
	}
	v, err := ParseStamp(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// ParseStamp reads the text form, which is strict: 13 decimal digits, 4 and
// 12 lower-case hex digits. Anything else is ErrFormat.
func ParseStamp(text string) (Stamp, error) {
	var s Stamp
	if len(text) != 13+1+4+1+12 || text[13] != '-' || text[18] != '-' {
		return s, fmt.Errorf("%w: %q", ErrFormat, text)
	}
	for _, c := range []byte(text[:13]) {
		if c < '0' || c > '9' {
			return s, fmt.Errorf("%w: %q", ErrFormat, text)
		}
	}
	for _, c := range []byte(text[14:18] + text[19:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return s, fmt.Errorf("%w: %q", ErrFormat, text)
		}
	}
	ms, err := strconv.ParseInt(text[:13], 10, 64)
	if err != nil {
		return s, fmt.Errorf("%w: %q", ErrFormat, text)
	}
	counter, err := strconv.ParseUint(text[14:18], 16, 16)
	if err != nil {
		return s, fmt.Errorf("%w: %q", ErrFormat, text)
	}
	if _, err := hex.Decode(s.Origin[:], []byte(text[19:])); err != nil {
		return Stamp{}, fmt.Errorf("%w: %q", ErrFormat, text)
	}
	s.Timestamp = New(ms, uint16(counter))
	return s, nil
}
