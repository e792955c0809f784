package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Defaults of Config.
const (
	DefaultListen = "0.0.0.0:7717"
	DefaultBound  = hlc.DefaultBound
)

// Env is what a Reactor knows besides the views.
type Env struct {
	Self    oplog.Origin
	Label   string
	Now     hlc.Timestamp
	Horizon Horizon
}

// Reactor writes the ops that follow from what is in the views: it looks
// after commits and on a slow tick. Its ops carry an op id that is a function
// of their cause, so that a repeat counts once. ask is the highest timestamp
// above which it waits for every member's floor; zero waits for nothing.
type Reactor interface {
	Name() string
	React(snap oplog.Snapshot, env Env) (ops []oplog.Op, ask hlc.Timestamp, err error)
}

// Config says what a replica is. Only Dir is needed; a zero field means the
// default named beside it.
type Config struct {
	Dir      string // data directory, holds the store; required
	StateDir string // keys, remembered peers; Dir/../state when Dir ends in "data", else Dir + "-state". Never inside Dir
	Label    string // name of this replica in the mesh; the host's. Fixed by the admission
	Listen   string // mesh address; DefaultListen. Port 0 takes any
	// Advertise are addresses to tell peers, host:port; none means those of the
	// machine's interfaces with the listening port.
	Advertise []string
	Peers     []string // addresses to dial besides the remembered ones
	Static    bool     // no memberlist: Peers and remembered addresses only

	// Keyring keeps the store's key where the system keeps secrets (T3). Nil, or
	// one that does not answer when the key is made, leaves it in a key file.
	Keyring     Keyring
	Projections []oplog.Projection // folds of the domains; membership is put before them
	Reactors    []Reactor

	Wall   func() int64  // wall clock in unix ms; the machine's
	Rand   io.Reader     // crypto/rand
	Bound  time.Duration // clock bound of C3; DefaultBound
	Logger *slog.Logger  // none

	PlainStore bool  // leave the store unencrypted; T3 wants it encrypted
	MinFree    int64 // bytes of free disk below which writes are refused; the log's default

	// DropPacket, when set, is asked for every gossip packet in or out, and
	// loses it when true. Tests use it to block UDP.
	DropPacket func() bool
	// Timing of the shell; zero fields mean the defaults.
	Timing Timing

	// at, when set, is told each point of a join that brings entries along. Its
	// error ends the work there, as a crash would. For tests.
	at func(point string) error
}

// Timing holds the shell's intervals. Tests shorten them.
type Timing struct {
	Tick      time.Duration // core tick; 200ms
	React     time.Duration // slow tick of the reactors; 15s
	Handshake time.Duration // dial and TLS handshake; 10s
	Idle      time.Duration // a link that is silent this long is cut; 20s
	Write     time.Duration // one frame must be written in this; 20s
	RedialMin time.Duration // first back-off of a failed dial; 500ms
	RedialMax time.Duration // longest back-off; 30s
}

func (t *Timing) fill() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.Tick, 200*time.Millisecond)
	def(&t.React, 15*time.Second)
	def(&t.Handshake, 10*time.Second)
	def(&t.Idle, 20*time.Second)
	def(&t.Write, 20*time.Second)
	def(&t.RedialMin, 500*time.Millisecond)
	def(&t.RedialMax, 30*time.Second)
}

// withDefaults returns a copy with every zero field filled.
func (c Config) withDefaults() Config {
	if c.StateDir == "" && c.Dir != "" {
		dir := filepath.Clean(c.Dir)
		if filepath.Base(dir) == "data" {
			c.StateDir = filepath.Join(filepath.Dir(dir), "state")
		} else {
			c.StateDir = dir + "-state"
		}
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Wall == nil {
		c.Wall = func() int64 { return time.Now().UnixMilli() }
	}
	if c.Bound == 0 {
		c.Bound = DefaultBound
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Rand = randOr(c.Rand)
	c.Timing.fill()
	return c
}

// Validate reports everything that is wrong with the configuration, zero
// fields taken as their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &Error{Code: CodeInvalidArgument, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)})
	}
	if c.Dir == "" {
		bad("Dir", "no data directory named")
	} else if rel, err := filepath.Rel(c.Dir, c.StateDir); err == nil && !strings.HasPrefix(rel, "..") {
		bad("StateDir", "%s lies in the data directory; keys must not travel with the data", c.StateDir)
	}
	if c.Label != "" {
		if err := CheckLabel(c.Label); err != nil {
			errs = append(errs, err)
		}
	}
	if err := checkAddr(c.Listen, true); err != nil {
		bad("Listen", "%v", err)
	}
	for _, a := range c.Advertise {
		if err := checkAddr(a, false); err != nil {
			bad("Advertise", "%v", err)
		}
	}
	for _, a := range c.Peers {
		if err := checkAddr(a, false); err != nil {
			bad("Peers", "%v", err)
		}
	}
	seen := map[string]bool{MembersView: true, ErasuresView: true}
	for _, p := range c.Projections {
		if seen[p.Name()] {
			bad("Projections", "two are named %q", p.Name())
		}
		seen[p.Name()] = true
	}
	if c.Bound < 0 {
		bad("Bound", "negative")
	}
	return errors.Join(errs...)
}

func (c *Config) storeDir() string { return filepath.Join(c.Dir, "store") }
func (c *Config) meshFile() string { return filepath.Join(c.Dir, "mesh") }

func checkAddr(a string, listen bool) error {
	if len(a) > maxAddr {
		return fmt.Errorf("address of %d bytes, limit %d", len(a), maxAddr)
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("%q is not host:port", a)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return fmt.Errorf("%q has no usable port", a)
	}
	if host == "" && !listen {
		return fmt.Errorf("%q has no host", a)
	}
	return nil
}

var labelForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._]{0,31}$`)

// CheckLabel reports whether a label has the form that all members accept:
// a lower-case letter or digit, then up to 31 of a-z 0-9 . _
func CheckLabel(label string) error {
	if labelForm.MatchString(label) {
		return nil
	}
	return &Error{Code: CodeInvalidArgument, Field: "label", Message: fmt.Sprintf("label %q is not usable", label),
		Hint: "use 1 to 32 of a-z 0-9 . _, beginning with a letter or digit"}
}

// LabelOf makes a label of a host name: lowered, other characters to "_".
func LabelOf(host string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(host) {
		if b.Len() == 32 {
			break
		}
		ok := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		switch {
		case ok || b.Len() > 0 && (r == '.' || r == '_'):
			b.WriteRune(r)
		case b.Len() > 0:
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 {
		return "replica"
	}
	return b.String()
}

func (c *Config) label() string {
	if c.Label != "" {
		return c.Label
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return LabelOf(host)
}
