"""What a value may be called, by its kind: the nouns that forms, declarations and sentences name it by, and how a request joins it to what is wanted."""

# kind of values.py: nouns for it
ROLES = {
    "person": """author baker buyer captain carer caller candidate cashier chair chef client coach collector composer conductor contact cook courier creditor curator customer dancer dealer debtor
        delegate designer director doctor donor driver editor emigrant employee examiner farmer finder fisher founder gardener guard guest guide heir helper holder host hunter immigrant informant inspector inventor
        judge keeper landlord lawyer leader lecturer lender librarian lodger manager mayor mechanic member mentor messenger minister musician nurse observer officer operator orderer organiser owner painter partner
        payer pianist pilot planner player poet porter presenter printer prisoner producer professor pupil purchaser reader recipient referee refugee registrant renter reporter reviewer rider
        sailor scholar sculptor secretary seller sender signer skipper smith soldier solicitor speaker sponsor subscriber supervisor supplier surgeon surveyor suspect swimmer tailor teacher tenant
        tester tourist trader trainee trainer translator traveller trustee tutor user vendor veteran victim volunteer voter waiter warden witness worker writer""",
    "first": "child cousin friend brother sister neighbour assistant helper apprentice nickname colleague companion uncle aunt nephew niece pet rival twin intern deputy buddy",
    "town": """address arrival base birthplace branch camp capital centre city depot destination district factory_site field_office headquarters home homeplace hometown island landing location market municipality
        office origin outlet place plant port quarter region residence resort settlement site spot start station stop stopover suburb terminus town venue village whereabouts workplace""",
    "country": "country nation homeland state territory market origin destination birth_country nationality kingdom",
    "small": """adults apples bags balls bedrooms beds boats bottles boxes branches bridges cabins cases chairs chapters children classes cows crates cups days desks dishes doors drawers duration eggs employees
        episodes exits floors flights games goals guests halls hens hours houses islands items jars keys lamps lessons lines loaves medals meetings members minutes months nights offers orders packages pages
        pieces places plates players points portions pupils quantity rooms rounds rows sacks sheets ships shirts shops sisters slices staff stages stairs steps stores teams tents
        tickets tools towers trees tries units visits volunteers votes wagons weeks wheels windows workers years""",
    "int": "altitude area attendance balance budget calories capacity cells circulation depth distance elevation entries followers height horsepower kilobytes length mileage output pixels population power readers "
           "records residents revenue salary score size speed spectators stock sum total turnover volume voltage votes watts width words",
    "decimal": "amount average bill charge cost credit debt deposit discount dose expense fare fine grade gross height interest length loan loss margin mass net pay payment pension percentage premium pressure price "
               "profit rate rating ratio refund rent share subtotal tariff tax temperature thickness tip toll total value wage weight width yield",
    "date": "anniversary appointment arrival begin birthday closing date day deadline delivery departure due_date end entry exit expiry finish founded graduation hearing inspection issued launch opening payday period_end "
            "premiere published release renewal return signed start term_end valid_until visit wedding",
    "time": "alarm appointment arrival boarding bedtime checkin checkout closing_time clock curfew departure dinner hour kickoff meeting_time opening_time pickup start time wakeup",
    "weekday": "closing_day day meeting_day market_day rest_day weekday workday delivery_day training_day",
    "code": "account badge barcode booking card case certificate chip claim code contract coupon flight gate id identifier invoice key licence locker lot model number order parcel part_number passport patent permit plate "
            "platform product receipt record ref reference registration reservation room_code sample seal serial shelf sku slot socket ticket token tracking unit vehicle voucher",
    "email": "address contact contact_mail email inbox mail mail_address reply_to sender_mail",
    "phone": "callback cell fax hotline line mobile phone tel telephone",
    "file": "archive attachment backup document draft export file filename image logfile manuscript map photo picture plan recording report scan script sheet",
    "url": "homepage link page site source url web website",
    "proper": "album airline band bank boat book bookshop brand building business castle choir church club college company concert device exhibition factory film firm foundation game garden group gallery hall hospital "
              "hotel house inn institute magazine mill mine mountain museum newspaper novel opera orchestra organisation paper park party play product programme project publisher race restaurant ride river "
              "school series ship shop song stadium statue store street studio team theatre title tower train university vessel work workshop",
    "word": "animal battery blend branch category channel class component crop dialect dish fabric flavour genre group instrument keyword label language layer metal method mineral mode mood pattern plant password "
            "pattern program sort species status style subject surname symptom tag term theme tool topic type variety virus word",
    "phrase": "caption comment complaint cause description heading hint idea message motto note notice question reason remark request rule slogan subject summary text topic wish",
    "thing": "article belonging commodity device equipment find gadget gift goods instrument item load merchandise object parcel_content piece possession present product property purchase souvenir thing tool toy ware",
    "people": "actors applicants attendees authors brothers candidates children contestants crew daughters delegates editors finalists friends founders guests helpers heirs inhabitants judges kids laureates lodgers members "
              "names neighbours nominees owners parents participants partners people players pupils relatives residents runners siblings sons speakers staff teachers team "
              "travellers volunteers witnesses workers",
    "towns": "branches cities destinations halts legs locations places ports regions sites stations stops towns venues waypoints",
    "words": "animals brands categories chapters colors contents courses crops departments dishes fabrics features flavours games genres groups hobbies ingredients instruments keywords labels languages materials metals "
             "modules motifs parts plants products sections skills spices sports styles subjects supplies symptoms tags themes tools topics toys types utensils words",
    "codes": "accounts badges boxes cards cases codes files flights ids invoices keys models numbers orders parcels permits plates records references samples serials shelves slots tickets trains units vouchers",
    "foods": "courses dishes foods groceries ingredients menu meals side_dishes snacks",
    "numbers": "amounts counts data figures grades heights intervals lengths levels marks masses measurements numbers points prices ratings readings results samples scores speeds temperatures times values voltages weights",
    "color": "color colour hue paint shade tint", "job": "career craft employment function job occupation position post profession role trade work",
    "material": "fabric material matter metal stuff substance", "hobby": "hobby interest leisure pastime passion sport activity", "bool": "active approved available confirmed delivered done finished insured "
    "invited locked married member open paid present ready refundable repaired required returned signed sold urgent vegetarian verified visible",
}
ROLES = {kind: nouns.split() for kind, nouns in ROLES.items()}
ROLES["iso"] = ROLES["date"]
# How a part of a sentence brings a value in whose kind says what it is: with no noun for it.
JOINED = {
    "person": ["for {v}", "by {v}", "from {v}", "to {v}", "with {v}", "at the request of {v}", "on account of {v}", "in place of {v}", "on the orders of {v}", "instead of {v}", "as {v} asked", "because {v} wants it", "and tell {v}",
               "next to {v}", "after {v}", "in the presence of {v}", "with regards to {v}", "in agreement with {v}", "on the advice of {v}", "in memory of {v}", "as a gift from {v}", "addressed to {v}", "handed over by {v}", "thanks to {v}",
               "care of {v}", "in favour of {v}", "of {v}", "(asked by {v})", "- {v} wants it", "as a favour for {v}", "known to {v}", "like {v} did", "under the eyes of {v}", "signed by {v}", "payable by {v}"],
    "town": ["in {v}", "at {v}", "near {v}", "from {v}", "to {v}", "via {v}", "around {v}", "outside {v}", "close to {v}", "down in {v}", "all the way to {v}", "in the middle of {v}", "right behind {v}", "not far from {v}", "up at {v}",
             "as far as {v}", "somewhere in {v}", "across {v}", "in the area of {v}", "past {v}", "in good old {v}", "on the road to {v}", "within {v}"],
    "country": ["in {v}", "from {v}", "to {v}", "across {v}", "made in {v}", "all over {v}", "outside {v}", "in the south of {v}", "as in {v}"],
    "small": ["{v} times", "about {v} of them", "all {v} of it", "numbering {v}", "{v} in all", "no more than {v}", "at least {v}", "at most {v}", "up to {v}", "exactly {v}", "{v} pieces", "in sets of {v}", "in groups of {v}", "x {v}", "every {v}"],
    "int": ["up to {v}", "at {v}", "of {v}", "about {v}", "at no more than {v}", "reaching {v}", "above {v}", "below {v}", "with {v} of it", "not over {v}", "under {v}", "starting at {v}", "with a maximum of {v}", "as much as {v}", "roughly {v}"],
    "decimal": ["for {v}", "at {v}", "up to {v}", "of {v}", "below {v}", "at most {v}", "at least {v}", "for not more than {v}", "for less than {v}", "with {v}", "over {v}", "by {v}", "worth {v}", "within {v}", "for no less than {v}", "capped at {v}"],
    "date": ["on {v}", "by {v}", "until {v}", "before {v}", "after {v}", "from {v} on", "as of {v}", "since {v}", "not before {v}", "at the latest on {v}", "dated {v}", "for {v}", "on the morning of {v}", "up to {v}", "not after {v}",
             "beginning {v}", "ending {v}", "any time before {v}", "latest by {v}"],
    "time": ["at {v}", "by {v}", "before {v}", "after {v}", "from {v}", "until {v}", "around {v}", "at {v} sharp", "no sooner than {v}", "as soon as it is {v}", "starting {v}", "right at {v}"],
    "weekday": ["on {v}", "every {v}", "each {v}", "by {v}", "next {v}", "until {v}", "not before {v}", "this {v}", "on a {v}", "from {v} on", "{v} at the latest"],
    "code": ["under {v}", "number {v}", "no. {v}", "with {v} on it", "marked {v}", "filed as {v}", "listed as {v}", "{v}", "({v})", "known as {v}", "see {v}", "registered as {v}", "with the tag {v}", "stamped {v}", "via {v}", "#{v}"],
    "email": ["and mail {v}", "and write to {v}", "at {v}", "with a copy to {v}", "reporting to {v}", "cc {v}", "and let {v} know"],
    "phone": ["and call {v}", "reachable on {v}", "calling {v}", "via {v}", "and ring {v}", "tel. {v}"],
    "file": ["from {v}", "into {v}", "as in {v}", "using {v}", "based on {v}", "and save it as {v}", "with {v} attached", "according to {v}", "stored as {v}", "out of {v}"],
    "url": ["from {v}", "see {v}", "as on {v}", "found at {v}", "via {v}", "linked at {v}"],
    "proper": ["called {v}", "named {v}", "by the name of {v}", "for {v}", "of {v}", "at {v}", "with {v}", "from {v}", "known as {v}", "through {v}", "titled {v}", "entitled {v}", "going by {v}", "which is called {v}", "whose name is {v}",
               "that everybody calls {v}", "that bears the name {v}", "with {v} as its name"],
    "word": ["called {v}", "named {v}", "with {v}", "as {v}", "in {v}", "of {v}", "for {v}", "like {v}", "tagged {v}", "by the name of {v}", "that goes by {v}", "about {v}", "in the manner of {v}", "by way of {v}", "without {v}", "against {v}",
             "that we call {v}", "that is named {v}", "whose name is {v}", "known as {v}", "which has the name {v}", "that answers to {v}"],
    "phrase": ["saying \"{v}\"", "with \"{v}\" on it", "reading \"{v}\"", "and write: \"{v}\"", "under the heading \"{v}\"", "with the words \"{v}\"", "because \"{v}\"", "about \"{v}\"", "and add '{v}'", "entitled \"{v}\"", "titled '{v}'",
               "quoting \"{v}\"", "marked \"{v}\"", "with '{v}' as a remark", "that says \"{v}\""],
    "thing": ["with a {v}", "and a {v}", "using a {v}", "for a {v}", "like a {v}", "next to the {v}", "beside the {v}", "in exchange for a {v}", "without the {v}", "together with the {v}"],
    "people": ["for {v}", "with {v}", "together with {v}", "by {v}", "and invite {v}", "from {v}", "in the company of {v}", "between {v}", "to {v}", "along with {v}", "under {v}"],
    "towns": ["via {v}", "in {v}", "through {v}", "between {v}", "from {v}", "passing {v}", "by way of {v}", "to {v}"],
    "words": ["with {v}", "using {v}", "including {v}", "without {v}", "made with {v}", "containing {v}", "namely {v}", "such as {v}", "that is {v}", "plus {v}", "and also {v}", "with the help of {v}", "involving {v}", "out of {v}"],
    "codes": ["under {v}", "with {v}", "numbers {v}", "listed as {v}", "namely {v}", "covering {v}", "for {v}"],
    "foods": ["with {v}", "and serve {v}", "containing {v}", "without {v}", "made of {v}", "next to {v}"],
    "numbers": ["with {v}", "of {v}", "at {v}", "giving {v}", "for {v}", "using {v}"],
    "color": ["in {v}", "with {v} paint", "all in {v}", "dyed {v}", "of {v}", "coloured {v}", "painted {v}"], "job": ["as a {v}", "for a {v}", "by a {v}", "with a {v}", "like a {v}"],
    "material": ["of {v}", "made of {v}", "in {v}", "out of {v}", "from {v}", "covered in {v}"], "hobby": ["for {v}", "about {v}", "after {v}", "during {v}", "while {v}", "instead of {v}"],
}
JOINED["first"], JOINED["iso"] = JOINED["person"], JOINED["date"]
# The same with a noun, {n}.
WITH_NOUN = ["with {n} {v}", "with the {n} {v}", "{n} {v}", "{n}: {v}", "the {n} being {v}", "whose {n} is {v}", "in the {n} {v}", "for the {n} {v}", "by {n} {v}", "({n} {v})", "and {n} {v}", "using {v} as {n}", "of {n} {v}",
             "having {v} as the {n}", "to the {n} {v}", "from {n} {v}", "{v} as the {n}", "at the {n} {v}", "- {n} {v}", "on {n} {v}", "in {n} {v}", "where the {n} is {v}", "where {v} is the {n}"]
COUNTED = ["for {v} {n}", "with {v} {n}", "in {v} {n}", "of {v} {n}", "over {v} {n}", "after {v} {n}", "{v} {n}", "up to {v} {n}", "within {v} {n}", "at most {v} {n}", "no more than {v} {n}", "across {v} {n}", "and {v} {n}",
           "to {v} {n}", "from {v} {n}", "every {v} {n}", "by {v} {n}", "lasting {v} {n}", "(all {v} {n})", "including {v} {n}"]
MONEY = "euros dollars pounds francs crowns yen EUR USD".split()


def noun(rng, kind):
    return rng.choice(ROLES[kind])


def spoken(key):
    return key.replace("_", " ")


def key(rng, kind, noun):
    """What a form or declaration calls it."""
    chance = rng.random()
    if chance < 0.6:
        return noun
    if kind in ("small", "int"):
        return rng.choice((f"number_of_{noun}", f"{noun}_count", f"num_{noun}", f"total_{noun}", f"{noun}_total", f"n_{noun}"))
    if kind in ("person", "first", "proper"):
        return rng.choice((f"{noun}_name", f"name_of_{noun}", f"{noun}_full_name", f"the_{noun}", f"main_{noun}"))
    if kind in ("code",):
        return rng.choice((f"{noun}_number", f"{noun}_id", f"{noun}_code", f"{noun}_ref", f"{noun}_no"))
    if kind in ("date", "iso"):
        return rng.choice((f"{noun}_date", f"date_of_{noun}", f"{noun}_on", f"{noun}_day")) if not noun.endswith("date") else noun
    if kind in ("people", "words", "towns", "codes", "foods", "numbers"):
        return rng.choice((f"{noun}_list", f"all_{noun}", f"list_of_{noun}", f"the_{noun}"))
    if kind == "decimal":
        return rng.choice((f"{noun}_amount", f"total_{noun}", f"{noun}_value", f"max_{noun}", f"{noun}_bound", f"{noun}_per_unit"))
    return rng.choice((f"{noun}_name", f"the_{noun}", f"new_{noun}", f"{noun}_info", f"main_{noun}"))
