package hlc

import (
	"bytes"
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

// Max is the highest timestamp that has a text form. Clocks issue none above
// it and codecs refuse what lies above it.
const Max Timestamp = MaxMillis<<16 | 0xffff

// textLen is the length of a Stamp's text form.
const textLen = 13 + 1 + 4 + 1 + 12

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
// millisecond (C1). Above Max there is no next to use.
func (t Timestamp) Next() Timestamp { return t + 1 }

// Sub is the difference of the wall parts, t minus u, or the nearest duration
// there is (about 292 years).
func (t Timestamp) Sub(u Timestamp) time.Duration { return millis(t.Millis() - u.Millis()) }

// Stamp is a timestamp with the short id of the origin that issued it, which
// is what people and clients see.
type Stamp struct {
	Timestamp Timestamp
	Origin    [6]byte
}

// String is `<13 digit ms>-<4 hex>-<12 hex of the origin>`. It sorts as bytes
// in the order of Compare, for timestamps up to Max.
func (s Stamp) String() string {
	var buf [textLen + 2]byte // a timestamp above Max has 15 digits
	return string(s.appendTo(buf[:0]))
}

func (s Stamp) appendTo(dst []byte) []byte {
	ms := s.Timestamp.Millis()
	for limit := int64(1e12); limit > 1 && ms < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, ms, 10)
	n := s.Timestamp.Counter()
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, []byte{byte(n >> 8), byte(n)})
	dst = append(dst, '-')
	return hex.AppendEncode(dst, s.Origin[:])
}

// IsZero reports whether the stamp carries no reading.
func (s Stamp) IsZero() bool { return s.Timestamp == 0 }

// Compare orders by timestamp, then by origin.
func (s Stamp) Compare(u Stamp) int {
	if c := s.Timestamp.Compare(u.Timestamp); c != 0 {
		return c
	}
	return bytes.Compare(s.Origin[:], u.Origin[:])
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
// 12 lower-case hex digits. Anything else is ErrFormat. Formatting the result
// gives the text back.
func ParseStamp(text string) (Stamp, error) {
	if len(text) != textLen || text[13] != '-' || text[18] != '-' {
		return Stamp{}, formatError(text)
	}
	var ms, counter int64
	for i := range 13 {
		c := text[i]
		if c < '0' || c > '9' {
			return Stamp{}, formatError(text)
		}
		ms = ms*10 + int64(c-'0')
	}
	for i := 14; i < 18; i++ {
		n := hexDigit(text[i])
		if n < 0 {
			return Stamp{}, formatError(text)
		}
		counter = counter<<4 | n
	}
	s := Stamp{Timestamp: New(ms, uint16(counter))}
	for i := range s.Origin {
		hi, lo := hexDigit(text[19+2*i]), hexDigit(text[20+2*i])
		if hi < 0 || lo < 0 {
			return Stamp{}, formatError(text)
		}
		s.Origin[i] = byte(hi<<4 | lo)
	}
	return s, nil
}

func hexDigit(c byte) int64 {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0')
	case c >= 'a' && c <= 'f':
		return int64(c-'a') + 10
	}
	return -1
}

// formatError quotes the text, which may come from anybody, up to a limit.
func formatError(text string) error {
	if len(text) > 2*textLen {
		return fmt.Errorf("%w: %d bytes beginning %q", ErrFormat, len(text), text[:textLen])
	}
	return fmt.Errorf("%w: %q", ErrFormat, text)
}
