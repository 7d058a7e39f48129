"""Word lists and invented names shared by the families."""

FIRST = """Ada Alan Alice Amir Ana Anton Astrid Ben Bianca Boris Carla Carlos Chen Clara Daniel Daria David Diego Elena Elif Emil
Emma Erik Eva Farah Felix Fiona Georg Grace Hana Hugo Ida Igor Ines Ivan Jana Jonas Julia Karim Kate Kenji Lars Laura Leo Lina
Lucas Luna Marco Maria Marta Max Mia Milan Mina Nadia Nina Noah Nora Olga Oscar Paul Petra Pia Rafael Rita Rosa Sam Sara Sofia
Sven Tariq Theo Tom Uma Vera Victor Wei Yara Yusuf Zoe""".split()
LAST = """Adler Baker Berg Bianchi Carter Costa Cruz Dubois Evans Fischer Garcia Gomez Hansen Hill Ito Jensen Kaya Keller Khan
Kim Klein Kowalski Lang Larsen Lee Lopez Martin Meyer Moreau Moreno Muller Nagy Novak Olsen Park Patel Petrov Reed Ricci Rossi
Sato Schmidt Silva Singh Smith Sokolov Stone Tanaka Torres Vogel Wagner Weber Wong Young Zhang""".split()
CITIES = """Athens Austin Bergen Berlin Bern Bologna Bordeaux Boston Bremen Brussels Cairo Chicago Cologne Cork Dakar Delhi Denver
Dublin Florence Geneva Ghent Hamburg Hanoi Helsinki Istanbul Kyiv Kyoto Lagos Leeds Leipzig Lima Lisbon London Lyon Madrid Malmo
Manila Milan Montreal Munich Nairobi Nantes Naples Osaka Oslo Ottawa Paris Porto Prague Quito Riga Rome Santiago Seoul Seville
Sofia Split Stockholm Sydney Tallinn Tokyo Toronto Toulouse Turin Utrecht Venice Vienna Warsaw Zagreb Zurich""".split()
COLORS = "red blue green yellow orange purple brown black white grey pink silver golden violet".split()
JOBS = """baker teacher nurse pilot farmer engineer painter lawyer chemist driver gardener plumber carpenter librarian chef
dentist writer musician tailor mechanic""".split()
FRUIT = "apples pears plums cherries lemons oranges melons grapes peaches figs berries nuts".split()
THINGS = """lamp chair table bottle basket blanket candle hammer ladder mirror bucket pillow kettle teapot wallet jacket helmet
camera guitar violin drum tent rope map compass lantern notebook pencil brush carpet clock radio bicycle scarf umbrella
suitcase shelf keyboard monitor speaker""".split()
ANIMALS = "cat dog horse goat sheep fox wolf bear owl hawk crow swan duck goose frog toad hare deer mouse otter".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COMMON = """able about above across action afternoon again air almost alone along always anchor animal answer apple arm arrow
autumn away back bag ball band bank barrel base basin bath beach bean beauty bed bell below bench bird birth bit blade block
blood blossom board boat body bone book border bottle bottom box branch brave bread breath brick bridge bright broad brother
bucket build burn butter button cabin cable cake calm candle canvas cap car card care carpet carry castle catch cause cave
center chain chair chalk chance change cheese cherry chest child choice circle city clay clean clear climb clock cloth cloud
coast coat coin cold color comb common copper copy corn corner cotton count country courage course cousin cover cow cradle
cream creek crowd crown cup curtain curve dance danger dark daughter day deep desert desk dinner dirt distance doctor door
double dream dress drink drive drop dry dust eagle early earth east easy edge effort egg eight engine evening event every
example eye face fact fall family farm father feather fence field figure finger fire fish flag flame flat floor flour flower
fly fog food foot forest fork form fresh friend frost fruit full game garden gate gentle ghost gift glass glove gold grain
grass gravel great green ground group guest guide hair half hall hammer hand happy harbor hard harvest hat head heart heavy
hill history holiday honest honey hook hope horizon horse hour house hundred ice idea inside iron island ivory jacket jar
jewel join journey judge juice jump jungle key kind king kitchen kitten knee knife knot ladder lake lamp land language large
laugh leaf learn leather left lemon letter level library light line lion list little lock long loud love machine map marble
march market mask meadow meal measure meat medal melody memory metal middle milk mill mind minute mirror mist model moment
money monkey month moon morning mother motor mountain mouse mouth music nail name narrow nature near neck needle nest night
noise north nose note number oak ocean office oil old olive onion open orange order oven owner page paint pair palace paper
parade parent park part party path pattern peace pebble pencil people pepper picture piece pillow pine pipe place plain plan
planet plant plate pocket poem point pond poor port potato powder present price prince promise proud pump puzzle queen
question quick quiet rabbit rain ranch reason record red rest ribbon rice rich ride ring ripe river road rock roof room root
rope rose rough round rule sail salt sand school science sea season seat second secret seed sentence seven shade shadow shape
sharp sheep shelf shell shine ship shirt shoe shop shore short shoulder silence silk silver simple sister size skin sky sleep
slow small smile smoke smooth snow soap soft soil soldier song sound soup south space spice spider spoon spring square stable
stage stair star station steam steel stem step stick stone store storm story stove straight strange straw stream street strong
sugar summer sun supper surface sweet table tail tale talk tall task taste teach tent thick thin thing thread throat thunder
ticket tide tiger time tin tired tooth top tower town toy track trade train travel tree triangle trick true trunk turn twelve
twenty twin uncle under valley value velvet village vine violet visit voice wagon walk wall warm wash watch water wave wax
weather week well west wet wheat wheel whisper whistle white wide wild willow wind window wing winter wire wise wolf wonder
wood wool word work world yard year yellow young""".split()

SYLLABLES = """bal bar bel ben bor bran cal cam cor dal dar del den dor dra fal fen fer gal gar gel gor gra hal har hel kal kar kel
ken kor kra lan lar lem len lor mal mar mel men mor nal nar nel nor pal par pel per por ral ran rel ren ril ros sal san sar sel
sil sol tal tan tar tel ten tor tra tul val van var vel ven ver vik vol vor wen wil xan yor zal zan zel zor""".split()


def invented(rng, parts=2):
    return "".join(rng.choice(SYLLABLES) for _ in range(parts))


def full_name(rng):
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def date(rng):
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1990, 2035)}"


def iso_date(rng):
    return f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock(rng):
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"
