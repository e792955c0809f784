// Package linediff shows what changes between two texts, line by line, in the
// unified format. It is meant for files of settings and instructions: time and
// memory grow with the product of the changed lines of both sides, up to a
// bound, beyond which all between the first and the last change is shown as
// replaced.
package linediff
