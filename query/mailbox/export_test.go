package mailbox

// AppendMark lets tests write marks that no caller can.
var AppendMark = appendMark
