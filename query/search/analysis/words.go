package analysis

import "strings"

// stopWords are words of the language itself. They are not indexed: OR of
// terms with BM25 would rank them near zero and pay for the longest postings.
var stopWords = wordSet(`
a about again all also am an and any are as at
be because been before being both but by
can could did do does doing done for from
had has have having he her hers here him his how
i if in into is it its itself just
let may me might more most must my myself
no nor not of on once only or other our ours own
shall she should so some such
than that the their theirs them themselves then there these they this those through to too
us very was we were what when where which while who whom whose why will with would
you your yours yourself
i'm i've i'd i'll it's that's there's what's who's where's when's how's let's
he's she's we're we've we'll they're they've they'll you're you've you'll you'd
don't doesn't didn't isn't aren't wasn't weren't won't wouldn't can't couldn't
shouldn't haven't hasn't hadn't ain't
s t d m re ve ll
`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

// StopWord reports whether a lowered word carries no meaning of its own.
func StopWord(w string) bool { return stopWords[w] }

// irregular maps forms that no suffix rule reaches to the word a dictionary
// lists them under. A question asks in one tense what a note says in another.
var irregular = pairs(`
ate:eat eaten:eat began:begin begun:begin bent:bend bit:bite bitten:bite blew:blow blown:blow
bought:buy bound:bind bred:breed broke:break broken:break brought:bring built:build burnt:burn
came:come caught:catch chose:choose chosen:choose crept:creep
dealt:deal drank:drink drawn:draw dreamt:dream drew:draw driven:drive drove:drive drunk:drink dug:dig
fallen:fall fed:feed fell:fall felt:feel flew:fly flown:fly forgave:forgive forgiven:forgive
forgot:forget forgotten:forget fought:fight found:find froze:freeze frozen:freeze
gave:give given:give gone:go got:get gotten:get grew:grow grown:grow
heard:hear held:hold hid:hide hidden:hide hung:hang kept:keep knelt:kneel knew:know known:know
laid:lay led:lead lent:lend lost:lose made:make meant:mean met:meet
overwritten:overwrite overwrote:overwrite overrode:override overridden:override
paid:pay rang:ring ran:run rebuilt:rebuild rewritten:rewrite rewrote:rewrite ridden:ride rode:ride rose:rise risen:rise rung:ring
said:say sang:sing sank:sink sat:sit saw:see seen:see sent:send sewn:sew shaken:shake shook:shake
shone:shine shot:shoot shown:show shrank:shrink shrunk:shrink slept:sleep slid:slide sold:sell
sought:seek spent:spend split:split spoke:speak spoken:speak sprang:spring spun:spin
stole:steal stolen:steal stood:stand struck:strike stuck:stick sung:sing swam:swim swept:sweep swore:swear sworn:swear swum:swim swung:swing
taken:take taught:teach thought:think threw:throw thrown:throw told:tell took:take tore:tear torn:tear
undid:undo undone:undo understood:understand went:go wept:weep woke:wake woken:wake won:win wore:wear worn:wear wound:wind
withdrew:withdraw withdrawn:withdraw written:write wrote:write
children:child men:man women:woman people:person feet:foot teeth:tooth mice:mouse geese:goose
indices:index matrices:matrix vertices:vertex analyses:analysis criteria:criterion
lives:life wives:wife knives:knife leaves:leaf halves:half selves:self wolves:wolf shelves:shelf
best:good better:good worst:bad worse:bad
mum:mom mums:mom moms:mom kids:child kid:child
`)

func pairs(list string) map[string]string {
	m := map[string]string{}
	for p := range strings.FieldsSeq(list) {
		form, word, _ := strings.Cut(p, ":")
		m[form] = word
	}
	return m
}
