// Package jsonc reads JSON that people write, too, with comments, trailing
// commas and an order of their own, and puts a value into it.
//
// [Add] puts a member into an object, [Append] an item into a list. Both
// insert text at its place, in the style of what is around it, and nothing
// else moves: the result is read again, and a change that would say more or
// less than was asked for is an error.
package jsonc
