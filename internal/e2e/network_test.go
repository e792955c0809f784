package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// network is where the hosts live and how they are parted.
type network interface {
	// wrap is what to put before a command so that it runs on a host.
	wrap(label string) []string
	// listen is the address a host's replica listens on.
	listen(label string) string
	// flags are further flags of up.
	flags() []string
	// listening tells where a host turned out to listen.
	listening(label, addr string)
	// cut parts one host from all others; heal joins it again. The hosts run.
	cut(h *host, others ...*host)
	heal(h *host, others ...*host)
}

// newNetwork makes network namespaces if this machine and user may, and says
// which kind it is.
func newNetwork(t *testing.T, labels ...string) network {
	t.Helper()
	n := &namespaces{t: t, id: fmt.Sprintf("tl%d", os.Getpid()%100000)}
	err := errors.New("TALLY_E2E_LOOPBACK is set")
	if os.Getenv("TALLY_E2E_LOOPBACK") == "" {
		err = n.make(labels)
	}
	if err != nil {
		n.remove()
		t.Logf("network: loopback addresses, for network namespaces cannot be made here: %v", err)
		return &loopback{addr: map[string]string{}}
	}
	t.Cleanup(n.remove)
	t.Log("network: a namespace per host, on one bridge")
	return n
}

// namespaces gives each host a network namespace with one interface, on a
// bridge in a namespace of its own. Parting a host takes its link down.
type namespaces struct {
	t      *testing.T
	id     string
	labels []string
}

func (n *namespaces) ns(label string) string { return n.id + label }
func (n *namespaces) hub() string            { return n.id + "hub" }
func (n *namespaces) port(label string) string {
	return fmt.Sprintf("p%s%s", n.id, label)
}

func (n *namespaces) ip(label string) string {
	for i, l := range n.labels {
		if l == label {
			return fmt.Sprintf("10.117.0.%d", i+1)
		}
	}
	n.t.Fatalf("no host %s", label)
	return ""
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *namespaces) make(labels []string) error {
	n.labels = labels
	steps := [][]string{
		{"netns", "add", n.hub()},
		{"-n", n.hub(), "link", "add", "br0", "type", "bridge"},
		{"-n", n.hub(), "link", "set", "br0", "up"},
	}
	for _, l := range labels {
		steps = append(steps, [][]string{
			{"netns", "add", n.ns(l)},
			{"-n", n.hub(), "link", "add", n.port(l), "type", "veth", "peer", "name", "eth0", "netns", n.ns(l)},
			{"-n", n.hub(), "link", "set", n.port(l), "master", "br0"},
			{"-n", n.hub(), "link", "set", n.port(l), "up"},
			{"-n", n.ns(l), "link", "set", "lo", "up"},
			{"-n", n.ns(l), "link", "set", "eth0", "up"},
			{"-n", n.ns(l), "addr", "add", n.ip(l) + "/24", "dev", "eth0"},
		}...)
	}
	for _, s := range steps {
		if err := ip(s...); err != nil {
			return err
		}
	}
	return nil
}

func (n *namespaces) remove() {
	for _, l := range n.labels {
		ip("netns", "del", n.ns(l))
	}
	ip("netns", "del", n.hub())
}

func (n *namespaces) wrap(label string) []string   { return []string{"ip", "netns", "exec", n.ns(label)} }
func (n *namespaces) listen(label string) string   { return n.ip(label) + ":7717" }
func (n *namespaces) flags() []string              { return nil }
func (n *namespaces) listening(label, addr string) {}

func (n *namespaces) link(h *host, state string) {
	if err := ip("-n", n.hub(), "link", "set", n.port(h.label), state); err != nil {
		n.t.Fatal(err)
	}
}

func (n *namespaces) cut(h *host, _ ...*host)  { n.link(h, "down") }
func (n *namespaces) heal(h *host, _ ...*host) { n.link(h, "up") }

// loopback has all hosts on 127.0.0.1. Hosts are parted by stopping them all
// and starting each on a new port, which it is told of its own side alone.
type loopback struct{ addr map[string]string }

func (n *loopback) wrap(string) []string         { return nil }
func (n *loopback) listen(string) string         { return "127.0.0.1:0" }
func (n *loopback) flags() []string              { return []string{"--static"} }
func (n *loopback) listening(label, addr string) { n.addr[label] = addr }

// restart stops all sides, then starts each as a mesh of its own.
func (n *loopback) restart(sides ...[]*host) {
	for _, side := range sides {
		for _, h := range side {
			h.stop()
		}
	}
	for _, side := range sides {
		var peers []string
		for _, h := range side {
			h.peers = peers
			h.start()
			peers = append(peers[:len(peers):len(peers)], n.addr[h.label])
		}
	}
}

func (n *loopback) cut(h *host, others ...*host)  { n.restart([]*host{h}, others) }
func (n *loopback) heal(h *host, others ...*host) { n.restart(append([]*host{h}, others...)) }
