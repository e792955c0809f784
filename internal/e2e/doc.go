// Package e2e holds the tests that run the tally binary as real processes on
// several hosts: network namespaces where the machine allows them, loopback
// addresses elsewhere. It has no code of its own.
package e2e
